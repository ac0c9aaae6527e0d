"""The ``cyinst`` command: subcommands are imported when they run, so that ``--help`` is instant."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

import click

from profiler import __version__
from profiler.errors import CyinstError

# name -> one-line help; the modules of profiler.commands are imported only to run them.
COMMANDS = {
    "profile": "Capture one launch with Nsight Compute, and close its books.",
    "report": "Account for every cycle of the launches in a report.",
    "compare": "Explain the change in time between two launches.",
    "hot": "Name the culprit: from sampled stall to producer, source line and region.",
    "verify": "Check a specimen's variants: parity before speed.",
    "launch": "Launch one variant inside an NVTX range, for ncu to capture.",
    "doctor": "Say what is installed, whether counters may be read, and the remedy for each obstacle.",
    "demo": "Compare the two bundled captures: byte loads against wide loads.",
}


class LazyGroup(click.Group):
    """A click group whose commands live in ``profiler.commands.<name>`` as ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order in which a newcomer meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"profiler.commands.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cyinst")
def cli() -> None:
    """Where did every cycle of this CUDA kernel go, and what did my change really do?"""


def main() -> None:
    """Entry point: errors become one line on stderr and an exit code by kind."""
    # A command lives for a second and makes many small values: collect cycles rarely.
    gc.set_threshold(200_000, 50, 50)
    try:
        cli.main(prog_name="cyinst", standalone_mode=False)
    except CyinstError as error:
        sys.exit(_fail(str(error), error.exit_code))
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        usage = f" (see {context.command_path} --help)" if context is not None else ""
        sys.exit(_fail(" ".join(error.format_message().split()) + usage, error.exit_code))
    except (click.Abort, KeyboardInterrupt):
        sys.exit(_fail("interrupted", 130))
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; that is no failure of ours.
        sys.stderr.close()
        sys.exit(0)


def _fail(text: str, code: int) -> int:
    click.echo(f"cyinst: {text}", err=True)
    return code


if __name__ == "__main__":
    main()
