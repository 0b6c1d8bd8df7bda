"""Plain JSON: the only kind of value that crosses a port or reaches a journal."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeAlias

import orjson

from app import errors
from app.domain import secret_spellings

Json: TypeAlias = Any  # None, bool, int, float, str, list or dict of these; keys are strings.
Object: TypeAlias = Mapping[str, Json]  # A JSON object that is only read.
PREVIEW_CHARACTERS = 200  # Most characters of a preview.
LONG_AGO = "1970-01-01T00:00:00.000Z"  # Used for an instant that a file lacks.

_MASK = "***"
_PART = 8
# Names of Control Room's own fields have this form, and drivers read them.
_FIELD = re.compile(r"[a-z][a-z_]{0,31}")
# Created once: an encoder per call, as `json.dumps` makes it, costs as much as encoding a small value.
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=lambda value: dataclasses.asdict(value)
)
_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_UNLIKE_JSON = re.compile(rb"null|[0-9](?:\.[0-9]|e[-+0-9])")
_CANONICAL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)
SHORTEST_SECRET = secret_spellings.SHORTEST  # Length of the shortest secret that is masked.


def plain(value: object) -> Json:
    """Return a deep copy made of plain JSON values: tuples become lists, lone surrogates are replaced.

    Raises:
        errors.InputRefused: a value has no JSON form (a set, a NaN, a key that is not text); `not_plain_json`.
    """
    # Every value that a run begins with and every output is converted here, part by part.
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict | Mapping):
        made: dict[str, Json] = {}
        for name, item in value.items():
            if not isinstance(name, str):
                break
            made[name if name.isascii() else str(plain(name))] = plain(item)
        else:
            return made
    raise errors.InputRefused(f"{type(value).__name__} {value!r:.80} is not plain JSON", code="not_plain_json")


def holds_more(value: Json, most: int, free: Container[str] = ()) -> bool:
    """Return whether a value contains more values than `most`, with no more work than that.

    Args:
        free: Names of fields of objects whose contents are not counted.
    """
    waiting, found = [value], 0
    while waiting:
        inner = waiting.pop()
        if not isinstance(inner, dict | list):
            continue
        found += len(inner)
        if found > most:
            return True
        waiting += [item for name, item in inner.items() if name not in free] if isinstance(inner, dict) else inner
    return False


def encode(value: Json) -> bytes:
    """Encode a value compactly in the order of its keys, as in journal lines."""
    try:
        return orjson.dumps(value)
    except TypeError:
        # orjson does not support integers beyond 64 bits.
        return _ENCODER.encode(value).encode()


def readable(value: Json) -> bytes:
    """Encode a value as a file that people edit: with a line for each part, indented."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2).encode() + b"\n"


def encode_lines(values: Iterable[Json]) -> bytes:
    """Encode values, or dataclasses of them, as lines."""
    # The interpreter itself builds the list, since the events of every step pass through here.
    try:
        return b"\n".join([*map(orjson.dumps, values), b""])
    except TypeError:
        return b"\n".join([*map(encode, values), b""])


def canonical(value: Json) -> bytes:
    """Encode a value with sorted keys and no spaces, the form that is hashed.

    Numbers are written as Python's `json` does, so that any program can compute the same hash of the same value.
    """
    try:
        quick = orjson.dumps(value, option=_SORTED)
    except TypeError:
        return _CANONICAL.encode(value).encode()
    # orjson writes some floats in another form, and NaN and infinities as null.
    return quick if _UNLIKE_JSON.search(quick) is None else _CANONICAL.encode(value).encode()


def content(value: Json) -> bytes:
    """Return the bytes of an output: of a text the text itself, of any other value the canonical form."""
    return value.encode() if isinstance(value, str) else canonical(value)


def sha256(value: bytes) -> str:
    """Return the hexadecimal hash without a label, as in slots."""
    return hashlib.sha256(value).hexdigest()


def entity_tag(body: bytes) -> str:
    """Return the entity tag of an HTTP response, in quotes."""
    return f'"{sha256(body)[:32]}"'


def labelled_sha256(value: bytes) -> str:
    """Return `sha256:<hex>`, as in journal lines."""
    return f"sha256:{hashlib.sha256(value).hexdigest()}"


def derived_id(text: str) -> str:
    """Return the id of a conversation that is derived from a text, in the form of a UUID."""
    digits = sha256(text.encode())
    # Programs check version and variant; version 5 is for ids that are derived from names.
    version, variant = f"5{digits[13:16]}", f"{int(digits[16], 16) & 0x3 | 0x8:x}{digits[17:20]}"
    return f"{digits[:8]}-{digits[8:12]}-{version}-{variant}-{digits[20:32]}"


def preview(value: Json) -> str:
    """Return the first two hundred characters of a value on one line."""
    text = value if isinstance(value, str) else encode(value).decode()
    return " ".join(text[: 2 * PREVIEW_CHARACTERS].split())[:PREVIEW_CHARACTERS]


class Masker:
    """Replaces secrets anywhere in a plain value, in every usual spelling."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._prepare(frozenset(), set(secrets))

    def hiding(self, secrets: Iterable[str]) -> Masker:
        """Return a masker that masks further secrets as well."""
        further = {secret for secret in secrets if secret not in self._spellings}
        if not further:
            return self
        made = Masker()
        made._prepare(frozenset(self._spellings), further)
        return made

    def mask(self, value: Json) -> Json:
        """Return the value with each secret replaced by `***`, also in keys.

        Secrets under four characters are not masked: that would tear ordinary text apart. If a text that was cut begins
        or ends with a part of a secret, that part is replaced, too.
        """
        return self._masked(value, anywhere=False) if self._marks and self._concerns(value) else value

    def mask_cut(self, value: Json) -> Json:
        """Return the value with parts of secrets replaced anywhere, too: messages quote texts that were cut."""
        return self._masked(value, anywhere=True) if self._marks and self._concerns(value) else value

    def mask_held(self, text: str, *, at_end: bool) -> str:
        """Return the beginning or the end of a longer text without secrets.

        The part of a secret that crosses the cut is removed, however short.
        """
        most = 0
        for spelling in self._spellings:
            for length in range(min(len(spelling) - 1, len(text)), most, -1):
                if text.startswith(spelling[-length:]) if at_end else text.endswith(spelling[:length]):
                    most = length
                    break
        rest = text[most:] if at_end else text[: len(text) - most]
        masked: str = self.mask(rest)
        return masked

    def safe_end(self, text: str) -> int:
        """Return how much of a text can be masked by itself, whatever follows: no secret crosses that position."""
        longest = max(map(len, self._spellings), default=1)
        end, moved = max(len(text) - longest + 1, 0), True
        while moved:
            moved = False
            for spelling in self._spellings:
                # A secret that crosses the end would be cut apart.
                at = text.find(spelling, max(end - len(spelling) + 1, 0), end + len(spelling) - 1)
                if 0 <= at < end:
                    end, moved = at, True
        return end

    def _prepare(self, known: frozenset[str], secrets: set[str]) -> None:
        spelled = known.union(*(secret_spellings.of(secret) for secret in secrets if len(secret) >= SHORTEST_SECRET))
        self._spellings = dict.fromkeys(sorted(spelled, key=lambda spelling: (-len(spelling), spelling)))
        parted = [spelling for spelling in self._spellings if _has_parts(spelling)]
        self._parts = tuple((spelling[:_PART], spelling[-_PART:], spelling) for spelling in parted)
        # A text without any of these contains neither a secret nor a part of one; many spellings begin alike.
        begins = {part for begin, end, _ in self._parts for part in (begin, end)}
        self._marks = tuple(begins | {spelling for spelling in self._spellings if not _has_parts(spelling)})
        self._encoded_marks = tuple(encode(mark)[1:-1] for mark in self._marks)

    def _concerns(self, value: Json) -> bool:
        match value:
            case str():
                return any(mark in value for mark in self._marks)
            case dict() | list():
                return bool(self._marks) and self._is_marked(value)
        return False

    def _is_marked(self, value: Json) -> bool:
        try:
            encoded = encode(value)
        except ValueError:
            return True
        return any(mark in encoded for mark in self._encoded_marks)

    def _masked(self, value: Json, *, anywhere: bool) -> Json:
        match value:
            case str():
                return self._masked_text(value, anywhere=anywhere)
            case dict():
                return {
                    name if _FIELD.fullmatch(name) else self._masked_text(name, anywhere=anywhere): self._masked(
                        item, anywhere=anywhere
                    )
                    for name, item in value.items()
                }
            case list():
                return [self._masked(item, anywhere=anywhere) for item in value]
        return value

    def _masked_text(self, text: str, *, anywhere: bool) -> str:
        for spelling in self._spellings:
            text = text.replace(spelling, _MASK)
        for begin, end, spelling in self._parts:
            if begin in text:
                text = _without_begin(text, begin, spelling, anywhere=anywhere)
            if end in text:
                text = _without_begin(text[::-1], end[::-1], spelling[::-1], anywhere=anywhere)[::-1]
        return text


def _has_parts(spelling: str) -> bool:
    # The beginning of a path is the same as that of all others in its folder.
    return len(spelling) > _PART and not spelling.startswith(("/", "~"))


def _without_begin(text: str, begin: str, spelling: str, *, anywhere: bool) -> str:
    """Replace the beginning of a spelling, if the text ends within the spelling, or `anywhere`."""
    kept, position = [], 0
    found = text.find(begin) if anywhere else text.rfind(begin, max(len(text) - len(spelling), 0))
    while found >= 0:
        end = found + len(begin)
        while end < len(text) and end - found < len(spelling) and text[end] == spelling[end - found]:
            end += 1
        if anywhere or end == len(text):
            kept += [text[position:found], _MASK]
            position = end
        found = text.find(begin, end) if anywhere else -1
    return "".join([*kept, text[position:]])
