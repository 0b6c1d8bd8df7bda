"""JSON files written by people: report each flaw with its place, and never repeat a value, which may be a secret."""

from __future__ import annotations

import difflib
import errno
import json
from pathlib import Path
from typing import Any

from app import errors
from app.domain import json_text, json_words, plain


def read(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file."""
    try:
        # Reading a pipe would block, and a device has no end.
        if path.exists() and not path.is_file():
            raise _refused("unreadable", "is not a regular file")
        with path.open("rb") as file:
            # One byte more than allowed shows that the file is too large.
            content = file.read(max_bytes + 1)
    except OSError as error:
        refused = _refused("unreadable", f"cannot be read: {error.strerror}")
        refused.detail["errno"] = errno.errorcode.get(error.errno or 0)
        raise refused from error
    if len(content) > max_bytes:
        raise _refused("too_large", f"has more than {max_bytes} bytes")
    return content


def parse(content: bytes) -> plain.Json:
    """Return the JSON in a file's content."""
    return json_text.read(_decoded(content), exact=True)


def parse_line(content: bytes, line: int) -> plain.Json:
    """Return the JSON in a line of a file, with any characters in its texts."""
    text = _decoded(content, line)
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise _refused("syntax", f"is not JSON: {error.msg}", line) from error
    except (RecursionError, ValueError) as error:
        # JSON that is nested a million levels deep, or a number with a million digits.
        raise _refused("syntax", f"is not JSON that can be read: {error}", line) from error


def flaws(schema: plain.Object, document: plain.Json, line: int | None = None) -> list[errors.Flaw]:
    """Return every difference between a document and its schema."""
    from jsonschema import Draft202012Validator

    found = [
        errors.Flaw(path=path, code=code, message=message, line=line)
        for error in Draft202012Validator(schema).iter_errors(document)
        for path, code, message in _reported(error)
    ]
    return sorted(set(found), key=lambda flaw: (flaw.path, flaw.message))


def nearest(name: str, known: list[str]) -> str:
    """Return a hint: the known name that is nearest, or all known names."""
    near = difflib.get_close_matches(name[:80], known, 1)
    return f"did you mean {near[0]}?" if near else f"there is {', '.join(known) or 'none'}"


def _decoded(content: bytes, line: int | None = None) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused("not_text", f"is not UTF-8 text at byte {error.start}", line) from error


def _refuse(constant: str) -> None:
    raise ValueError(f"there is no {constant}")


def _refused(code: str, message: str, line: int | None = None) -> errors.InputRefused:
    flaw = errors.Flaw(path="$", code=code, message=message, line=line)
    return errors.InputRefused(f"The file {message}.", flaws=[flaw])


def _reported(error: Any) -> list[tuple[str, str, str]]:
    place, rule, instance = error.json_path, error.validator_value, error.instance
    match error.validator:
        case "required":
            # The rule lists all required fields; only the message names the missing one.
            missing = next(name for name in rule if name not in instance and f"'{name}'" in error.message)
            return [(place, "missing", f"lacks {missing}")]
        case "additionalProperties":
            known = list(error.schema.get("properties", {}))
            unknown = [name for name in instance if name not in known]
            return [
                (f"{place}.{name:.80}", "unknown", f"is not a known field; {nearest(name, known)}") for name in unknown
            ]
        case "type":
            names = [rule] if isinstance(rule, str) else rule
            return [(place, "type", f"must be {' or '.join(json_words.TYPES.get(name, name) for name in names)}")]
        case "enum":
            return [(place, "choice", f"must be one of {', '.join(json_words.words(rule))}")]
    # The schema's description explains more than the rule that is broken.
    described = error.schema.get("description") if isinstance(error.schema, dict) else None
    return [(place, str(error.validator), described or json_words.breach(error))]
