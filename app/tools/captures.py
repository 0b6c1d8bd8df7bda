"""Captures: convert a command's output into fields of the state, and validate it (workflow-dsl)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from app import errors
from app.domain import json_schemas, json_text, operations, plain
from app.processes import commands
from app.tools.workspace import Workspace

TEXT_BYTES = 8 * 1024  # Most bytes of a text that the state keeps.
MOST_LINES = 10_000  # Most lines that the state keeps.
JSON_BYTES = 1024 * 1024  # Most bytes that are parsed.
INVALID_OUTPUT = 2  # Exit code of a step whose output is invalid.

_TAIL_LINES = 10
_TAIL_CHARACTERS = 1000
_MOST_LISTED = 20
_MOST_CHECKS = 100_000
# Their regular expressions could take exponential time.
_UNSUPPORTED = ("patternProperties",)
_NO_SECRETS = plain.Masker()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardOutput:
    """What a program wrote to its standard output."""

    text: str  # Its beginning, as much as was kept.
    size_bytes: int  # Its full size.
    complete: bool  # Whether the text is the whole output.
    is_utf8: bool = True  # Whether the output was valid UTF-8, so that no character was replaced.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A step's rules for its output."""

    mode: str = "text"  # `text`, `lines` or `json`.
    allow_parse_error: bool = False  # Whether output that is not JSON is kept as text.
    schema: plain.Json = None  # JSON Schema for the JSON; None without one.
    require: Sequence[plain.Object] = ()  # Requirements of the JSON, in order.
    masker: plain.Masker = _NO_SECRETS  # Masks the parsed JSON again: it may contain a secret in another spelling.


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The result of a capture."""

    exit_code: int  # Exit code of the step.
    fields: plain.Object  # Fields of its result in the state.
    message: str | None = None  # Why the output is invalid; None if it is valid or the program failed.
    context: plain.Object = field(default_factory=dict)  # Error context.
    keeps_log: bool = False  # Whether the logs must contain the whole output.


def captured(output: StandardOutput, exit_code: int, rules: Rules) -> Captured:
    """Return the captured form of an output. A program that failed keeps its own exit code, whatever it has written."""
    match rules.mode:
        case "lines":
            return _lines(output, exit_code)
        case "json":
            return _json(output, exit_code, rules)
    kept, cut = _beginning(output)
    return Captured(exit_code=exit_code, fields={"output": kept, "truncated": cut}, keeps_log=cut)


def problem_of_schema(schema: plain.Json) -> str | None:
    """Return why a document cannot be used as an `output_schema`, None if it can."""
    if not isinstance(schema, dict):
        return f"it must be an object, not {json_schemas.kind_of(schema)}"
    if found := json_schemas.flaws(_metaschema(), schema, most_checks=_MOST_CHECKS):
        return f"{found[0].path} {found[0].message}"
    unfit = next((name for name in _keywords(schema) if name in _UNSUPPORTED), None)
    return None if unfit is None else f"{unfit} is not supported"


def tail(text: str) -> list[str]:
    """Return the last ten lines of an output, for the error context."""
    return [line[-_TAIL_CHARACTERS:] for line in text.rstrip("\r\n").split("\n")[-_TAIL_LINES:]] if text.strip() else []


def _beginning(output: StandardOutput) -> tuple[str, bool]:
    content = output.text.encode()
    kept = content[:TEXT_BYTES].decode("utf-8", "ignore")
    return kept, len(content) > TEXT_BYTES or not output.complete


def _lines(output: StandardOutput, exit_code: int) -> Captured:
    lines = output.text.split("\n")
    # After the last newline no line begins; and a line that was cut off is left out.
    if lines[-1] == "" or not output.complete:
        lines.pop()
    cut = len(lines) > MOST_LINES or not output.complete
    kept = [line.removesuffix("\r") for line in lines[:MOST_LINES]]
    return Captured(
        exit_code=exit_code, fields={"output_capture": "lines", "lines": kept, "truncated": cut}, keeps_log=cut
    )


def _json(output: StandardOutput, exit_code: int, rules: Rules) -> Captured:
    try:
        value = rules.masker.mask(_parsed(output))
    except _Unreadable as error:
        return _unreadable(output, exit_code, rules, error)
    made = Captured(exit_code=exit_code, fields={"output_capture": "json", "json": value, "truncated": False})
    if exit_code != 0:
        return made
    message, context = _breach(value, rules)
    if message is None:
        return made
    return dataclasses.replace(made, exit_code=INVALID_OUTPUT, message=message, context=context)


class _Unreadable(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def _parsed(output: StandardOutput) -> plain.Json:
    if output.size_bytes > JSON_BYTES or not output.complete:
        raise _Unreadable("overflow", f"the output is larger than {JSON_BYTES} bytes, so it is not parsed as JSON")
    if not output.is_utf8:
        raise _Unreadable("invalid", "the output cannot be parsed as JSON: it is not UTF-8")
    try:
        return json_text.read(output.text, exact=True)
    except errors.InputRefused as error:
        raise _Unreadable("invalid", f"the output cannot be parsed as JSON: {error.message}") from error


def _unreadable(output: StandardOutput, exit_code: int, rules: Rules, error: _Unreadable) -> Captured:
    kept, cut = _beginning(output)
    diagnosis = {"json_parse_error": {"reason": error.reason}}
    fields: dict[str, plain.Json] = {"output_capture": "json", "truncated": cut, "debug": diagnosis}
    if rules.allow_parse_error:
        return Captured(exit_code=exit_code, fields={**fields, "output": kept}, keeps_log=True)
    if exit_code != 0:
        return Captured(exit_code=exit_code, fields=fields, keeps_log=True)
    return Captured(exit_code=INVALID_OUTPUT, fields=fields, message=str(error), context=diagnosis, keeps_log=True)


# -- requirements of the JSON


def _breach(value: plain.Json, rules: Rules) -> tuple[str | None, plain.Object]:
    if rules.schema is not None and (reported := _schema_errors(rules.schema, value)):
        return f"the JSON does not fit its schema: {reported[0]}", {"json_schema_errors": reported}
    for requirement in rules.require:
        if (reason := _shortfall(requirement, value)) is not None:
            pointer = requirement["pointer"]
            failed = {"pointer": pointer, "reason": reason}
            return f"the JSON is not as required: {pointer or 'the whole'} {reason}", {"json_require_failed": failed}
    return None, {}


def _schema_errors(schema: plain.Json, value: plain.Json) -> list[str]:
    from referencing.exceptions import Unresolvable

    try:
        if (problem := problem_of_schema(schema)) is None:
            found = json_schemas.flaws(schema, value, most_checks=_MOST_CHECKS)
            return [f"{flaw.path} {flaw.message}" for flaw in found[:_MOST_LISTED]]
    except RecursionError:
        problem = "it refers to itself without end"
    except (Unresolvable, ValueError) as error:
        problem = f"it {error!s:.200}" if isinstance(error, ValueError) else f"there is no {error.ref}"
    return [f"the schema cannot be used: {problem}"]


def _keywords(schema: plain.Json) -> Iterator[str]:
    match schema:
        case dict():
            yield from schema
            for item in schema.values():
                yield from _keywords(item)
        case list():
            for item in schema:
                yield from _keywords(item)


def _metaschema() -> plain.Object:
    from jsonschema import Draft202012Validator

    return Draft202012Validator.META_SCHEMA


_ABSENT = object()


def _shortfall(requirement: plain.Object, value: plain.Json) -> str | None:
    found = _at(requirement["pointer"], value)
    if found is _ABSENT:
        return "is missing" if requirement.get("exists", True) else None
    if not requirement.get("exists", True):
        return "is there, but must not be"
    wanted = requirement.get("type")
    if wanted is not None and _type(found) != wanted:
        return f"must be of the type {wanted}, not {_type(found)}"
    if "equals" in requirement and not _same(found, requirement["equals"]):
        return (
            f"must be {plain.encode(requirement['equals']).decode()}, not {plain.preview(plain.encode(found).decode())}"
        )
    return None


def _at(pointer: str, value: plain.Json) -> plain.Json:
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        match value:
            case dict() if name in value:
                value = value[name]
            case list() if name.isascii() and name.isdigit() and str(int(name)) == name and int(name) < len(value):
                value = value[int(name)]
            case _:
                return _ABSENT
    return value


def _type(value: plain.Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _same(found: plain.Json, wanted: plain.Json) -> bool:
    return _type(found) == _type(wanted) and bool(found == wanted)


async def rules(workspace: Workspace, capture: operations.Capture | None, masker: plain.Masker) -> Rules | None:
    """Return the rules for a command's output, None if the operation has none.

    The schema is read before the program starts: an unusable schema fails the step before it costs anything, and a
    program cannot change the schema for its own output.

    Raises:
        errors.StepError: `path_outside_workspace`, or `output_invalid` with the reason in `json_schema_errors`.
    """
    if capture is None:
        return None
    schema = None
    if capture.mode == "json" and capture.schema_file is not None:
        schema = await asyncio.to_thread(_schema, workspace, capture.schema_file)
    return Rules(
        mode=capture.mode,
        allow_parse_error=capture.allow_parse_error,
        schema=schema,
        require=capture.require,
        masker=masker,
    )


def made_of(output: commands.Output, text: str, exit_code: int, wanted: Rules) -> Captured:
    """Return the captured form of a command's output.

    Args:
        exit_code: 0 if the program succeeded.
    """
    is_complete = len(output.content) == output.size_bytes
    is_utf8 = wanted.mode != "json" or output.size_bytes > JSON_BYTES or _is_utf8(output.content)
    printed = StandardOutput(text=text, size_bytes=output.size_bytes, complete=is_complete, is_utf8=is_utf8)
    return captured(printed, exit_code, wanted)


def _schema(workspace: Workspace, path: str) -> plain.Json:
    try:
        schema = json_text.read(workspace.read_text(path), exact=True)
    except errors.ToolFailed as failure:
        if failure.code == "path_outside_workspace":
            raise
        raise _unusable(failure.message) from failure
    except errors.InputRefused as refused:
        raise _unusable(f"{path!r:.200} cannot be parsed as JSON: {refused.message}") from refused
    if (problem := problem_of_schema(schema)) is not None:
        raise _unusable(f"{path!r:.200}: {problem}")
    return schema


def _unusable(problem: str) -> errors.StepError:
    message = f"the schema cannot be used: {problem}"
    detail = {"context": {"json_schema_errors": [message]}, "exit_code": INVALID_OUTPUT}
    return errors.StepError(message, code="output_invalid", detail=detail)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
