"""Words of programs: the JSON objects in what they write, whatever stands around them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

import orjson

from app.agents.programs.program import Event

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TRIES = 50


def events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Yield every JSON object: one a line, in an array, or one written over many lines; all else is passed over."""
    left = iter(lines)
    for line in left:
        if line.lstrip()[:1] not in (b"{", b"["):
            continue
        try:
            yield from _objects(orjson.loads(line))
        except orjson.JSONDecodeError:
            yield from _spread(line, left)
            return


def last_event(text: str) -> Event | None:
    """Return the JSON object that a text ends with, as some programs write their errors behind other complaints."""
    end = text.rstrip()
    begin = len(end)
    for _ in range(_TRIES):
        begin = max(end.rfind("\n{", 0, begin), 0 if end.startswith("{") else -1)
        if begin < 0:
            return None
        try:
            value = json.loads(end[begin:])
        except ValueError:
            if begin == 0:
                return None
            continue
        return value if isinstance(value, dict) else None
    return None


def plain_text(content: bytes) -> str:
    """Return an output as text without the signs that colour a terminal."""
    return _ESCAPES.sub("", content.decode("utf-8", "replace"))


def _spread(first: bytes, rest: Iterator[bytes]) -> Iterator[Event]:
    lines = [first, *rest]
    whole = b"".join(lines).decode("utf-8", "replace")
    try:
        value, _ = json.JSONDecoder().raw_decode(whole.lstrip())
    except (ValueError, RecursionError):
        # A line was cut off or torn; those around it still count.
        for line in lines[1:]:
            try:
                yield from _objects(orjson.loads(line))
            except orjson.JSONDecodeError:
                continue
        return
    yield from _objects(value)


def _objects(value: object) -> Iterator[Event]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield item
