"""The boundary of a program: convert every end of a command into an exit code and, at most, lines on
stderr.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import click

from app import errors, interruption, printable
from app.cli import exit_codes, terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command line program."""

    name: str  # Its name; error lines begin with it.
    command: click.Command  # Its command; returns the exit code.
    usage: int  # Exit code of an invalid command line.
    of_error: Callable[[BaseException], int]  # Returns the exit code of an error, or of a bug.


def execute(program: Program, arguments: Sequence[str] | None = None) -> int:
    """Execute a command line and return its exit code; errors are reported on stderr, one a line."""
    # First of all, since even a refusal must be printed.
    terminal.prepare()
    try:
        return _code(program, sys.argv[1:] if arguments is None else arguments)
    except terminal.PipeClosed:
        terminal.stop_writing()
        return exit_codes.ExitCode.INTERRUPTED if interruption.received() else exit_codes.ExitCode.PIPE_CLOSED


def _code(program: Program, arguments: Sequence[str]) -> int:
    try:
        with interruption.raised():
            _refuse_bytes(arguments)
            return int(program.command.main(args=arguments, prog_name=program.name, standalone_mode=False) or 0)
    except click.ClickException as error:
        _show(error)
        return program.usage
    except (click.Abort, KeyboardInterrupt) as error:
        # Click ends the line of the ^C, and raises an error of its own.
        return _report_interruption(program, str(error.__cause__ or ""))
    except (errors.ControlRoomError, errors.Fault) as error:
        return _report(program, exit_codes.sentences(error), error)
    except OSError as error:
        return _report(program, [str(error)], error)
    except terminal.PipeClosed:
        if not interruption.received():
            raise
        # Ctrl-C has ended the reader, too.
        return _report_interruption(program, "")
    except Exception as error:  # noqa: BLE001 - the outermost boundary: a bug is reported in one line as well
        if os.environ.get("CONTROL_ROOM_LOG_LEVEL", "").lower() == "debug":
            traceback.print_exc()
        return _report(program, [f"internal error: {type(error).__name__}: {error}"], error)


@contextlib.contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Stop what the command has started, at the end of the block; a signal ends the block, but not the stop."""
    stops = False

    def receive(number: signal.Signals) -> None:
        if not stops:
            raise KeyboardInterrupt

    with interruption.caught(receive):
        try:
            yield
        except KeyboardInterrupt:
            stops = True
            # The signal may have come because the terminal was closed.
            with contextlib.suppress(terminal.PipeClosed):
                terminal.warn("stopping")
            raise
        finally:
            stops = True
            stop()


def _refuse_bytes(arguments: Sequence[str]) -> None:
    # Python replaces undecodable bytes by characters that cannot be printed.
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise click.UsageError(f"{argument!r:.80} is not UTF-8 text.") from error


def _show(error: click.ClickException) -> None:
    if isinstance(error, click.NoSuchOption) and isinstance(error.ctx and error.ctx.command, click.Group):
        error.message = f"{error.message} Options of a command follow its name."  # type: ignore[misc]
    # The message contains words of the command line, including names of files.
    error.message = printable.one_line(error.message or "")  # type: ignore[misc]
    printed = io.StringIO()
    error.show(printed)
    terminal.warn(*printed.getvalue().rstrip("\n").split("\n"))


def _report_interruption(program: Program, how_to_continue: str) -> int:
    terminal.warn(f"{program.name}: interrupted{how_to_continue}")
    interruption.explain()
    return exit_codes.ExitCode.INTERRUPTED


def _report(program: Program, lines: list[str], error: BaseException) -> int:
    first, *others = lines
    terminal.warn(f"{program.name}: {first}", *others)
    return program.of_error(error)
