"""
The command `control-room` itself: its subcommands, and how every ending becomes an exit code.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from app import __version__, errors
from app.cli import crashing, endings, recipes, running, runs, serving, terminal, upkeep


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="control-room", message="%(prog)s %(version)s")
def control_room() -> None:
    """
    Run recipes of agents and tools, durably.

    Exit codes: 0 done, 1 failed, 2 usage or validation, 3 cancelled, 4 not found, 5 configuration or server,
    130 interrupted and resumable.
    """


for command in (
    serving.serve, running.run, runs.runs, recipes.recipes, recipes.route, upkeep.agents, upkeep.config, upkeep.index,
    upkeep.init, upkeep.openapi, crashing.crashtest,
):  # fmt: skip
    control_room.add_command(command)


def execute(arguments: Sequence[str] | None = None) -> int:
    """
    Execute a command line and return its exit code; whatever goes wrong is told in a line on stderr.
    """
    terminal.prepare()
    try:
        return int(control_room.main(args=arguments, prog_name="control-room", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return endings.ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        return endings.ExitCode.INTERRUPTED
    except terminal.PipeClosed:
        _stop_writing()
        return endings.ExitCode.PIPE_CLOSED
    except (errors.ControlRoomError, errors.Fault) as error:
        return _tell(endings.sentences(error), endings.of_error(error))
    except OSError as error:
        return _tell([str(error)], endings.ExitCode.CONFIGURATION)
    except Exception as error:  # noqa: BLE001 - the outermost boundary: a bug is told in a line as well
        if os.environ.get("CONTROL_ROOM_LOG_LEVEL", "").lower() == "debug":
            traceback.print_exc()
        return _tell([f"internal error: {type(error).__name__}: {error}"], endings.ExitCode.FAILED)


def _tell(lines: list[str], code: endings.ExitCode) -> int:
    first, *others = lines
    terminal.warn("\n".join([f"control-room: {first}", *others]))
    return code


def _stop_writing() -> None:
    # Whatever is still buffered must not fail once more when the interpreter ends.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
