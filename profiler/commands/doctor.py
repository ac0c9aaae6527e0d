"""``cyinst doctor``: what is installed, may counters be read, and the remedy for each obstacle."""

from __future__ import annotations

import click

from profiler.commands import common
from profiler.errors import MissingToolError


@click.command(name="doctor")
@click.option(
    "--format",
    "form",
    type=click.Choice(("table", "json", "markdown")),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.option("--capture", is_flag=True, help="Fail on obstacles to capturing too, not on those to reading alone.")
def command(form: str, capture: bool) -> None:
    """Say what is installed, which ncu, whether counters may be read, and the remedy for each obstacle.

    Looks and asks tools for their version; profiles nothing and changes nothing. The exit code is 6 when something
    that reading reports needs is missing; with --capture also when something stands in the way of capturing.
    """
    from profiler.doctor import examine

    diagnosis = examine()
    if form == "json":
        import json

        click.echo(json.dumps(diagnosis.to_dict(), indent=2))
    elif form == "markdown":
        from dashboards.terminal.doctor import markdown

        click.echo(markdown(diagnosis), nl=False)
    else:
        from dashboards.terminal.doctor import draw

        common.console_for().print(draw(diagnosis))
    obstacles = diagnosis.obstacles("reading") + (diagnosis.obstacles("capturing") if capture else ())
    if obstacles:
        names = ", ".join(check.name for check in obstacles)
        raise MissingToolError(f"doctor found obstacles: {names}; the remedies stand with the checks")
