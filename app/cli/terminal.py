"""The terminal: print text that survives any encoding and cannot control the terminal."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from app import printable

_LONGEST_LINE = 4096
_ERASE_LINE = "\r\x1b[K"


class PipeClosed(Exception):
    """The reader of the output closed it, or the terminal is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Options for the output and the log of a program that executes a run."""

    quiet: bool = False  # Whether stdout gets only the run's id.
    verbose: bool = False  # Whether stderr gets the log, or lines of the orchestration.
    events: bool = False  # Whether stderr gets structured lines.
    as_json: bool = False  # Whether stdout gets only the run as JSON, once it stops.
    progress: bool = False  # Whether progress is drawn on stderr.
    trace: bool = False  # Whether lines of the log have trace ids.
    level: str = "info"  # Lowest level that is logged.

    @property
    def prints_steps(self) -> bool:
        """Return whether stdout gets a line for each step."""
        return not (self.quiet or self.as_json or self.progress)


def prepare() -> None:
    """Make sure that neither an unencodable character nor a closed or non-blocking stream breaks a command."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
            # A stream has no file in tests.
            with contextlib.suppress(OSError, ValueError):
                # Another program may have made it non-blocking: Python then drops what a slow reader has no room for.
                os.set_blocking(stream.fileno(), True)


def is_live() -> bool:
    """Return whether a person watches the output."""
    return sys.stdout.isatty()


def is_redrawn() -> bool:
    """Return whether a person watches the output, on a terminal on which a line can be replaced."""
    return is_live() and _can_replace_lines()


def is_drawn_on() -> bool:
    """Return whether a person watches stderr, on such a terminal."""
    return sys.stderr.isatty() and _can_replace_lines()


def is_shared() -> bool:
    """Return whether the output and stderr go to the same place, such as one terminal or file."""
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno()))
    except (OSError, ValueError):
        return False


def is_answered() -> bool:
    """Return whether a person watches the output and can type an answer."""
    return sys.stdin is not None and sys.stdin.isatty() and is_live()


def say(line: str) -> None:
    """Print a line; line ends in it are escaped, so that no value can begin another line."""
    _write(sys.stdout, printable.one_line(line) + "\n")


def say_block(text: str) -> None:
    """Print lines of our own, in which each value is on one line."""
    _write(sys.stdout, printable.visible(text) + "\n")


def say_exactly(text: str) -> None:
    """Print a text unchanged, but without control characters on a live terminal."""
    _write(sys.stdout, printable.visible(text) + "\n" if is_live() else text)


def say_piece(text: str) -> None:
    """Print a piece of a text that arrives in pieces."""
    _write(sys.stdout, printable.visible(text) if is_live() else text)


def say_reply(text: str) -> None:
    """Print a text of another author among our own lines, and a blank line: unchanged, but marked on
    a live terminal.
    """
    _write(sys.stdout, (printable.quoted(text) if is_live() else text.rstrip("\n")) + "\n\n")


def show(found: Any, as_json: bool, text: Callable[[Any], str]) -> None:
    """Print a result, as JSON or as text for people."""
    if as_json:
        say_json(found)
    else:
        say_block(text(found))


def say_json(value: Any, *, one_line: bool = False) -> None:
    """Print a value as JSON, on one line or indented."""
    encoded = json.dumps(value, ensure_ascii=not _speaks_unicode(sys.stdout), indent=None if one_line else 2)
    _write(sys.stdout, printable.as_json(encoded) + "\n")


def warn(*lines: str) -> None:
    """Print lines for people on stderr."""
    _write(sys.stderr, "".join(f"{printable.one_line(line)}\n" for line in lines))


def replace_line(text: str) -> None:
    """Replace the unfinished last line by a text, cut to the width of the terminal; an empty text clears it."""
    _write(sys.stdout, _ERASE_LINE + _cut(text))


def draw(lines: Sequence[str], *, over: int) -> None:
    """Print lines on stderr, cut to the width of the terminal, in place of the last ones drawn."""
    begin = f"\x1b[{over}F\x1b[J" if over else ""
    _write(sys.stderr, begin + "".join(f"{_cut(line)}\n" for line in lines))


def prompt(text: str) -> None:
    """Print a text after which a person types."""
    _write(sys.stdout, printable.one_line(text))


def discard_typed() -> None:
    """Discard what a person typed and no program has read."""
    import termios

    stdin = sys.stdin.fileno()
    with contextlib.suppress(OSError):
        if os.tcgetpgrp(stdin) != os.getpgrp():
            # The kernel would stop a background process here.
            return
    # A terminal that is gone has nothing to discard.
    with contextlib.suppress(termios.error):
        termios.tcflush(stdin, termios.TCIFLUSH)


async def read_line() -> str | None:
    """Return the line that a person types, None at the end of the input; the event loop continues meanwhile."""
    import asyncio

    # Not in a thread: a reading thread would delay the end of the process until the person presses Enter.
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()
    written: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        if not written.done():
            written.set_result(os.read(stdin, _LONGEST_LINE))

    loop.add_reader(stdin, read)
    try:
        line = await written
    finally:
        loop.remove_reader(stdin)
    return line.decode("utf-8", "replace").rstrip("\r\n") if line else None


def stop_writing() -> None:
    """Discard output buffered for a reader that is gone, so that the interpreter does not fail at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


def _can_replace_lines() -> bool:
    # Terminals of this kind, such as that of an editor, show the orders as text.
    return os.environ.get("TERM") != "dumb"


def _cut(line: str) -> str:
    # A line that the terminal wraps could not be replaced.
    return printable.one_line(line)[: max(shutil.get_terminal_size().columns - 1, 1)]


def _speaks_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") in ("utf8", "utf16", "utf32")


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        raise PipeClosed from error
