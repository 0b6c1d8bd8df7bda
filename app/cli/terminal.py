"""
The terminal: what is printed survives any encoding, and nothing printed can steer it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_STEERING_IN_JSON = re.compile(r"[\x7f-\x9f]")
_LONGEST_LINE = 4096
_ERASE_LINE = "\r\x1b[K"


class PipeClosed(Exception):
    """
    Whoever read the output went away.
    """


def prepare() -> None:
    """
    Let neither a character that the terminal's encoding lacks nor a stream that is closed break a command.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def is_live() -> bool:
    """
    Tell whether a person watches the output.
    """
    return sys.stdout.isatty()


def is_drawn_on() -> bool:
    """
    Tell whether a person watches stderr.
    """
    return sys.stderr.isatty()


def is_answered() -> bool:
    """
    Tell whether a person watches the output and can say something to it.
    """
    return sys.stdin is not None and sys.stdin.isatty() and is_live()


def clean(text: str) -> str:
    """
    Return a text whose control characters, line ends and tabs excepted, are written out.
    """
    return _STEERING.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def say(text: str) -> None:
    """
    Print a line.
    """
    _write(sys.stdout, clean(text) + "\n")


def say_exactly(text: str) -> None:
    """
    Print a text as it is, but for control characters where a person watches.
    """
    _write(sys.stdout, clean(text) + "\n" if is_live() else text)


def say_reply(text: str) -> None:
    """
    Print what somebody else has said, and a blank line: as it is, but for control characters where a person watches.
    """
    _write(sys.stdout, (clean(text) if is_live() else text).rstrip("\n") + "\n\n")


def show(found: Any, as_json: bool, text: Callable[[Any], str]) -> None:
    """
    Say what was found, as JSON or as a text for people.
    """
    if as_json:
        say_json(found)
    else:
        say(text(found))


def say_json(value: Any, *, one_line: bool = False) -> None:
    """
    Print a value as JSON, one value a line or indented.
    """
    encoded = json.dumps(value, ensure_ascii=not _speaks_unicode(sys.stdout), indent=None if one_line else 2)
    _write(sys.stdout, _STEERING_IN_JSON.sub(lambda found: f"\\u{ord(found.group()):04x}", encoded) + "\n")


def warn(text: str) -> None:
    """
    Print a line for people only, on stderr.
    """
    _write(sys.stderr, clean(text) + "\n")


def replace_line(text: str) -> None:
    """
    Show a text in place of the unfinished last line; an empty one clears it.
    """
    _write(sys.stdout, _ERASE_LINE + clean(text))


def draw(lines: Sequence[str], *, over: int) -> None:
    """
    Show lines on stderr, none longer than the terminal is wide, in place of the last ones that were shown so.
    """
    width = max(shutil.get_terminal_size().columns - 1, 1)
    begin = f"\x1b[{over}F\x1b[J" if over else ""
    _write(sys.stderr, begin + "".join(f"{clean(line)[:width]}\n" for line in lines))


def prompt(text: str) -> None:
    """
    Show a text behind which a person is to write.
    """
    _write(sys.stdout, clean(text))


async def read_line() -> str | None:
    """
    Return what a person writes, None at the end of the input; the loop goes on meanwhile.
    """
    import asyncio

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
    """
    Let what is still buffered for a reader that went away not fail once more when the interpreter ends.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def _speaks_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") in ("utf8", "utf16", "utf32")


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError as error:
        raise PipeClosed from error
