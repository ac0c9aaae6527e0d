"""One file per subcommand: read arguments, call the rooms, draw, exit code."""
