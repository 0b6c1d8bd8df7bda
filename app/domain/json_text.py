"""JSON text: parses JSON from outside strictly: one value, unique names, representable numbers, bounded depth."""

# This is the only reader of JSON from people: bodies, arguments, argument files, recipes. Python's own parser accepts
# repeated names; and bytes that are not text enter through command lines, folder names and links. Both break a command,
# or every start of a run, far from where they entered.
#
# With `exact=True` half of a surrogate pair is an error at its place; agents' replies are read without it. A command
# line that is not UTF-8 is a usage error. A project, data directory or workspace whose path is not UTF-8 is rejected.
# Price: a file whose name is not UTF-8 cannot be named on a command line.

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from app import errors
from app.domain import plain

MAX_CHARACTERS = 1024 * 1024  # Most characters of a text that is read.
MAX_DEPTH = 64  # Most objects and lists inside one another.

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_MAX_DIGITS = 64
_MAX_FLAWS = 50
_SHOWN_CHARACTERS = 80
_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NUL = "\\u0000"
_NO_BRACKETS = re.compile(r"[^][{}]++")
_HALF = re.compile("[\ud800-\udfff]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")

Parts: TypeAlias = tuple[str | int, ...]  # Place in a value: names and positions, from its root.

_Trail: TypeAlias = "tuple[_Trail, str | int] | None"
_Items: TypeAlias = Iterator[tuple[Any, plain.Json]]

_ROOT = object()
_END = (None, None)


class _Object(dict[str, plain.Json]):
    repeated: tuple[str, ...] = ()


class _Misfit:
    def __init__(self, text: str) -> None:
        self.text = text


def read(text: str, *, exact: bool = False, most_values: int | None = None) -> plain.Json:
    """Return the value in a JSON text.

    Args:
        exact: Whether half of a surrogate pair is a flaw; otherwise it is replaced.
        most_values: Most values in the text; they are counted before parsing.

    Raises:
        errors.InputRefused: it has flaws: `too_large`, `too_many_values`, `syntax`, `too_deep`, `repeated_name`,
            `bad_number`, `nul_character`, `lone_surrogate`.
    """
    if len(text) > MAX_CHARACTERS:
        raise _refused(_flaw((), "too_large", f"is longer than {MAX_CHARACTERS} characters"))
    # Counted in the text, before a parser has created millions of objects.
    structure = _TEXT.sub("", text)
    if most_values is not None and structure.count(",") + structure.count("[") + structure.count("{") > most_values:
        raise _refused(_flaw((), "too_many_values", f"holds more than {most_values} values"))
    if _NUL not in text and _SURROGATE.search(text) is None and _is_flat(structure):
        sound, value = _quickly(text.removeprefix("\ufeff"))
        if sound:
            return value
    # The slower way, with a place for each flaw; it is only taken if there is a flaw.
    value = _loaded(text.removeprefix("\ufeff"))
    halves = exact and _SURROGATE.search(text) is not None
    flaws = [flaw for flaw, _ in zip(_found(value, halves), range(_MAX_FLAWS), strict=False)]
    if flaws:
        raise _refused(*flaws)
    return plain.plain(value)


def json_path(parts: Parts) -> str:
    """Return a place as a JSON path: `$.phase_a[0].tool`."""
    return "$" + "".join(map(_written, parts))


def texts(value: plain.Json, parts: Parts = ()) -> Iterator[tuple[Parts, str]]:
    """Yield every text inside a value, with its place; names of fields are not included."""
    match value:
        case str():
            yield parts, value
        case dict():
            for name, item in value.items():
                yield from texts(item, (*parts, name))
        case list():
            for index, item in enumerate(value):
                yield from texts(item, (*parts, index))


def halves(value: plain.Json, parts: Parts = ()) -> Iterator[Parts]:
    """Yield the places of texts and names that contain half of a surrogate pair."""
    match value:
        case str() if _is_half(value):
            yield parts
        case dict():
            for name, item in value.items():
                if _is_half(name):
                    yield (*parts, name)
                yield from halves(item, (*parts, name))
        case list():
            for index, item in enumerate(value):
                yield from halves(item, (*parts, index))


def joined(pieces: Iterable[str]) -> str:
    """Join the pieces of a text; two halves of a surrogate pair that meet become the character that they stand for."""
    text = "".join(pieces)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass") if _is_half(text) else text


def _is_flat(structure: str) -> bool:
    # If the text is not nested too deep, this many removals of the innermost brackets leave an empty text.
    remaining = _NO_BRACKETS.sub("", structure)
    for _ in range(MAX_DEPTH):
        if not remaining:
            return True
        before, remaining = remaining, remaining.replace("[]", "").replace("{}", "")
        if remaining == before:
            return not remaining
    return not remaining


def _quickly(text: str) -> tuple[bool, plain.Json]:
    """Return whether a text is without flaws, and its value; if it is not, the caller has to look for all flaws."""
    unsound = False

    def unfit(digits: str) -> _Misfit:
        nonlocal unsound
        unsound = True
        return _Misfit(digits)

    def made(pairs: list[tuple[str, plain.Json]]) -> dict[str, plain.Json]:
        nonlocal unsound
        value = dict(pairs)
        unsound = unsound or len(value) < len(pairs)
        return value

    def integer(digits: str) -> int | _Misfit:
        return int(digits) if len(digits) <= _MAX_DIGITS else unfit(digits)

    def number(digits: str) -> float | _Misfit:
        value = float(digits)
        return value if math.isfinite(value) else unfit(digits)

    try:
        value = json.loads(text, object_pairs_hook=made, parse_constant=unfit, parse_float=number, parse_int=integer)
    except (json.JSONDecodeError, RecursionError):
        return False, None
    return not unsound, value


def _is_half(text: str) -> bool:
    return _HALF.search(text) is not None


def _loaded(text: str) -> plain.Json:
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_Misfit, parse_float=_float, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        raise _refused(_flaw((), "syntax", message, error.lineno)) from error
    except RecursionError as error:
        raise _refused(_too_deep(())) from error


def _object(pairs: list[tuple[str, plain.Json]]) -> _Object:
    made = _Object(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        made.repeated = tuple(name for name in made if names.count(name) > 1) if len(names) < 1000 else tuple(made)[:1]
    return made


def _float(text: str) -> float | _Misfit:
    value = float(text)
    return value if math.isfinite(value) else _Misfit(text)


def _integer(text: str) -> int | _Misfit:
    return int(text) if len(text) <= _MAX_DIGITS else _Misfit(text)


def _found(value: plain.Json, halves: bool) -> Iterator[errors.Flaw]:
    # A place is kept as a trail of single parts: whole paths for each value would let long names exhaust the memory.
    opened: list[tuple[_Items, _Trail]] = [(iter([(_ROOT, value)]), None)]
    while opened:
        items, around = opened[-1]
        name, item = next(items, _END)
        if name is None:
            opened.pop()
            continue
        trail = None if name is _ROOT else (around, name)
        match item:
            case dict() | list() if len(opened) > MAX_DEPTH:
                yield _too_deep(_parts(trail))
                return
            case _Object():
                yield from (_repeated(trail, name) for name in item.repeated)
                yield from (flaw for name in item for flaw in _unfit(name, (trail, name), halves))
                opened.append((iter(item.items()), trail))
            case list():
                opened.append((iter(enumerate(item)), trail))
            case str():
                yield from _unfit(item, trail, halves)
            case _Misfit():
                shown = item.text[:_SHOWN_CHARACTERS]
                yield _flaw(_parts(trail), "bad_number", f"{shown} is not a number that JSON can represent")


def _repeated(trail: _Trail, name: str) -> errors.Flaw:
    return _flaw(_parts((trail, name)), "repeated_name", "occurs more than once in its object")


def _unfit(text: str, trail: _Trail, halves: bool) -> Iterator[errors.Flaw]:
    if "\x00" in text:
        yield _flaw(_parts(trail), "nul_character", "holds the character U+0000")
    if halves and plain.plain(text) != text:
        yield _flaw(_parts(trail), "lone_surrogate", "holds half of a surrogate pair")


def _too_deep(parts: Parts) -> errors.Flaw:
    return _flaw(parts, "too_deep", f"is nested more than {MAX_DEPTH} deep")


def _parts(trail: _Trail) -> Parts:
    parts: list[str | int] = []
    while trail is not None:
        trail, part = trail
        parts.append(part)
    return tuple(reversed(parts))


def _written(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    name = part[:_SHOWN_CHARACTERS].encode("utf-8", "replace").decode()
    return f".{name}" if name.isidentifier() or name == "$ref" else f"[{json.dumps(name, ensure_ascii=False)}]"


def _refused(*flaws: errors.Flaw) -> errors.InputRefused:
    first = flaws[0]
    return errors.InputRefused(f"{'the text' if first.path == '$' else first.path} {first.message}", flaws=flaws)


def _flaw(parts: Parts, code: str, message: str, line: int | None = None) -> errors.Flaw:
    return errors.Flaw(path=json_path(parts), code=code, message=message, line=line)


def inner(value: plain.Json, part: str) -> plain.Json:
    """Return the field or the item of a value that a part of a path names.

    Raises:
        KeyError: the value has no such field or item.
    """
    match value:
        case Mapping() if part in value:
            return value[part]
        case list() if _INDEX.fullmatch(part) and int(part) < len(value):
            return value[int(part)]
    raise KeyError(part)
