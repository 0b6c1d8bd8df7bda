"""Replies: decide whether the output of an agent or a command is data or text."""

from __future__ import annotations

import json
import re

from app import errors
from app.domain import json_schemas, json_text, plain

_FENCED = re.compile(r"\A\s*```[ \t]*(?:json|JSON)?[ \t]*\n(?P<inside>.*?)\n[ \t]*```\s*\Z", re.DOTALL)
_BLOCK = re.compile(r"^[ \t]*```[ \t]*(?:json|JSON)?[ \t]*\n(?P<inside>.*?)\n[ \t]*```", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"[{\[]")
# Brackets that JSON may follow; a bracket between words is not tried.
_BEGINNING = re.compile(r"""\{(?=\s*["}])|\[(?=\s*[\]\[{"\d\-tfn])""")
_PIECE = re.compile(r'"(?:[^"\\]|\\.?)*"?|[{}\[\]]', re.DOTALL)
_MOST_LOOKS = 200
_BUDGET_PER_CHARACTER = 4
_LEAST_BUDGET = 1_000_000
_COUNTING_SPEEDUP = 32
_MOST_CHECKS = 1_000_000


NEWEST = 4  # Version of the driver.


class NoData(ValueError):
    """A reply that must contain JSON has none, or none that fits; the message is a sentence without its subject."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code  # Stable name of the reason.


ASKED = "\n\nReply with one JSON value and nothing else: no words before or after it, no code fence."
"""Text appended to a prompt whose reply must be JSON."""


def read(reply_text: str, parse_json: bool | None, version: int = NEWEST) -> plain.Json:
    """Return the value of a reply.

    Args:
        parse_json: None: an object or a list is data if it is the whole reply, fenced or not; True: JSON between words
            is data, too; False: every reply is text.
        version: Version of the driver that began the run.
    """
    if parse_json is False:
        return reply_text
    exact = version > 1
    whole = _value(reply_text, exact)
    if whole is None:
        fenced = _FENCED.match(reply_text)
        whole = _value(fenced["inside"], exact) if fenced else None
    if whole is not None and (parse_json or isinstance(whole[0], dict | list)):
        return whole[0]
    if not parse_json:
        return reply_text
    if len(reply_text) > json_text.MAX_CHARACTERS:
        raise NoData("not_json", f"has more than {json_text.MAX_CHARACTERS} characters and is not JSON")
    return _first(reply_text) if version == 1 else _largest(reply_text)


def fitting(reply_text: str, schema: plain.Object, version: int = NEWEST) -> plain.Json:
    """Return the data of a reply that must fit a schema."""
    value = read(reply_text, True, version)
    try:
        found = json_schemas.flaws(schema, value, most_checks=_MOST_CHECKS)
    except json_schemas.TooCostly as error:
        raise NoData("reply_unfit", f"cannot be held against reply_schema: it {error}") from error
    if found:
        raise NoData("reply_unfit", f"does not fit reply_schema: {found[0].path} {found[0].message}")
    return value


def _value(text: str, exact: bool = True) -> tuple[plain.Json] | None:
    stripped = text.strip()
    if not stripped:
        return None
    try:
        return (json_text.read(stripped, exact=exact),)
    except errors.InputRefused:
        return None


def _largest(reply_text: str) -> plain.Json:
    """Return the longest object or list between the words; without one, any fenced value."""
    found, at = list[tuple[int, plain.Json]](), 0
    left = max(_BUDGET_PER_CHARACTER * len(reply_text), _LEAST_BUDGET)
    decoder = json.JSONDecoder()
    while left > 0 and (opening := _BEGINNING.search(reply_text, at)):
        try:
            _, at = decoder.raw_decode(reply_text, opening.start())
        except json.JSONDecodeError as error:
            # Failed attempts use the budget, too: nested opening brackets without end would be read again and again.
            # The error has also counted the line breaks in all characters before it, which is many times faster.
            left -= error.pos - opening.start() + 1 + error.pos // _COUNTING_SPEEDUP
            # The parts of broken JSON are not the reply; brackets between words are not JSON.
            is_broken = reply_text[opening.start() : error.pos].strip("[{ \t\r\n")
            at = _end(reply_text, opening.start()) if is_broken else opening.end()
        except (ValueError, RecursionError):
            left, at = left - len(reply_text), opening.end()
        else:
            value = _value(reply_text[opening.start() : at])
            found += [(at - opening.start(), value[0])] if value else []
    if found:
        return max(found, key=lambda one: one[0])[1]
    for block in _BLOCK.finditer(reply_text):
        value = _value(block["inside"])
        if value is not None:
            return value[0]
    raise NoData("not_json", "holds no valid JSON, and the step asks for some")


def _end(text: str, start: int) -> int:
    """Return the position after the bracket that closes the one at a position; without one, the end of the text."""
    depth = 0
    for piece in _PIECE.finditer(text, start):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(piece[0], 0)
        if not depth:
            return piece.end()
    return len(text)


def _first(reply_text: str) -> plain.Json:
    """Return the first JSON between words, fenced blocks first, as version 1 of the driver did."""
    for block in _BLOCK.finditer(reply_text):
        value = _value(block["inside"], exact=False)
        if value is not None:
            return value[0]
    decoder = json.JSONDecoder()
    for count, opening in enumerate(_OPENING.finditer(reply_text)):
        if count == _MOST_LOOKS:
            break
        try:
            _, end = decoder.raw_decode(reply_text, opening.start())
        except (ValueError, RecursionError):
            continue
        value = _value(reply_text[opening.start() : end], exact=False)
        if value is not None:
            return value[0]
    raise NoData("not_json", "holds no valid JSON, and the step asks for some")
