"""
Plain JSON: the only kind of value that crosses a port or reaches a journal.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import orjson

from app import errors

Json: TypeAlias = Any
"""None, bool, int, float, str, list or dict of these; keys are strings."""

PREVIEW_CHARACTERS = 200
"""Length of a preview."""

_MASK = "***"
# Made once: what `json.dumps` makes for every call costs as much as encoding a small value.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_CANONICAL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)
SHORTEST_SECRET = 4
"""Characters of the shortest secret that is masked."""


def plain(value: object) -> Json:
    """
    Return a deep copy made of plain JSON values: tuples become lists, lone surrogates are replaced.

    Raises:
        errors.InputRefused: a value has no JSON form (a set, a NaN, a key that is not text); `not_plain_json`.
    """
    match value:
        case None | bool() | int():
            return value
        case str():
            return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
        case float():
            if math.isfinite(value):
                return value
        case Mapping():
            if all(isinstance(key, str) for key in value):
                return {plain(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    raise errors.InputRefused(f"{type(value).__name__} {value!r:.80} is not plain JSON", code="not_plain_json")


def encode(value: Json) -> bytes:
    """
    Encode a value compactly in the order of its keys, as journal lines are.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        # It knows no integers beyond 64 bits.
        return _ENCODER.encode(value).encode()


def canonical(value: Json) -> bytes:
    """
    Encode a value with sorted keys and no spaces, the form that is hashed.

    Numbers are written as Python's `json` does, so that anybody can hash the same value to the same end.
    """
    return _CANONICAL.encode(value).encode()


def content(value: Json) -> bytes:
    """
    Return the bytes that stand for an output: a text itself, anything else in canonical form.
    """
    return value.encode() if isinstance(value, str) else canonical(value)


def sha256(value: bytes) -> str:
    """
    Return the bare hexadecimal hash, as slots hold it.
    """
    return hashlib.sha256(value).hexdigest()


def labelled_sha256(value: bytes) -> str:
    """
    Return `sha256:<hex>`, as journal lines hold it.
    """
    return f"sha256:{sha256(value)}"


def preview(value: Json) -> str:
    """
    Return the first two hundred characters of a value on one line.
    """
    text = value if isinstance(value, str) else encode(value).decode()
    return " ".join(text[: 2 * PREVIEW_CHARACTERS].split())[:PREVIEW_CHARACTERS]


class Masker:
    """
    Replace secret values wherever they stand in a plain value.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(sorted((s for s in set(secrets) if len(s) >= SHORTEST_SECRET), key=len, reverse=True))

    def hiding(self, secrets: Iterable[str]) -> Masker:
        """
        Return one that masks further secrets as well.
        """
        return Masker((*self._secrets, *secrets))

    def mask(self, value: Json) -> Json:
        """
        Return the value with each secret replaced by `***`, in keys as well.

        Secrets under four characters are left: masking them would tear ordinary text apart.
        """
        if not self._secrets:
            return value
        return self._masked(value)

    def _masked(self, value: Json) -> Json:
        match value:
            case str():
                for secret in self._secrets:
                    value = value.replace(secret, _MASK)
                return value
            case dict():
                return {self._masked(key): self._masked(item) for key, item in value.items()}
            case list():
                return [self._masked(item) for item in value]
        return value
