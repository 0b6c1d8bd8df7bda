"""The fields of workflows: one table for each kind of object, from which schema, defaults and load-time checks are
made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.domain import json_text, plain

VERSIONS = ("1.1", "1.1.1", "1.2", "1.3")
"""Versions of the language, oldest first (workflow-dsl, version gating summary)."""
NEWEST = VERSIONS[-1]
"""The version that has every field."""

FORMS = ("provider", "command", "wait_for", "for_each")
"""Fields of which each step has exactly one: what it does."""
END = "_end"
"""Target of a `goto` that ends the run successfully."""
JSON = "json"
"""Capture whose output is parsed."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
"""Form of the names of steps, which are parts of variables, keys and names of logs; `_end` has not this form."""
ALIAS = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
"""Form of the name of a loop's item."""

_ENV_NAME = r"^[^=\s]{1,256}$"
_MOST_SECONDS = 7 * 24 * 60 * 60

_Rule: TypeAlias = Mapping[str, plain.Json]

_NO = {"type": "boolean", "default": False}
_YES = {"type": "boolean", "default": True}
_WORD = {"type": "string", "minLength": 1, "maxLength": 200}
_TEXT = {"type": "string", "minLength": 1, "maxLength": 20_000}
_PATH = {"type": "string", "minLength": 1, "maxLength": 4096}
_STEP_NAME = {"type": "string", "pattern": NAME}
_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": _MOST_SECONDS}
_MS = {"type": "number", "minimum": 0, "maximum": 24 * 60 * 60 * 1000}
_COUNT = {"type": "integer", "minimum": 0, "maximum": 100_000}
_ARGV = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 10_000}
_GLOBS = {"type": "array", "items": _PATH, "maxItems": 1_000}
_VALUE = {"type": ["string", "number", "boolean", "null"]}
_ANY_OBJECT = {"type": "object"}
_ENV = {"type": "object", "propertyNames": {"pattern": _ENV_NAME}, "additionalProperties": {"type": "string"}}
_SECRETS = {"type": "array", "items": {"type": "string", "pattern": _ENV_NAME}, "maxItems": 200, "uniqueItems": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of one kind of object."""

    name: str
    """Its name."""
    rule: _Rule
    """JSON Schema of its value."""
    meaning: str
    """What it says, in a sentence."""
    required: bool = False
    """Whether it must be there."""
    since: str = VERSIONS[0]
    """Version that introduced it."""
    below: str | None = None
    """Kind of the object, or objects, that it holds."""
    path: Literal["file", "folder", "glob"] | None = None
    """What its text names inside the workspace, if it names anything."""
    filled: bool = False
    """Whether variables are substituted in it."""

    def known_in(self, version: str) -> bool:
        """Tell whether a version has the field."""
        return VERSIONS.index(self.since) <= VERSIONS.index(version)


def _one(kind: str) -> _Rule:
    return {"$ref": f"#/$defs/{kind}"}


def _field(name: str, rule: _Rule, meaning: str, **more: plain.Json) -> Field:
    return Field(name=name, rule=rule, meaning=meaning, **more)


def _part(name: str, kind: str, meaning: str, **more: plain.Json) -> Field:
    return Field(name=name, rule=_one(kind), meaning=meaning, below=kind, **more)


def _glob(name: str, meaning: str, rule: _Rule = _PATH, **more: plain.Json) -> Field:
    return Field(name=name, rule=rule, meaning=meaning, path="glob", filled=True, **more)


def _file(name: str, meaning: str, **more: plain.Json) -> Field:
    return Field(name=name, rule=_PATH, meaning=meaning, path="file", filled=True, **more)


def _folder(name: str, default: str, meaning: str) -> Field:
    return Field(name=name, rule=_PATH | {"default": default}, meaning=meaning, path="folder")


def _steps(meaning: str) -> Field:
    rule = {"type": "array", "items": _one("step"), "minItems": 1, "maxItems": 1_000}
    return Field(name="steps", rule=rule, meaning=meaning, below="step", required=True)


KINDS: Mapping[str, tuple[Field, ...]] = {
    "workflow": (
        _field("version", {"enum": list(VERSIONS), "type": "string"}, "Version of the language.", required=True),
        _field("name", _WORD, "Name for people; by default the name of the file."),
        _field("strict_flow", _YES, "Whether a step that fails without a `goto` of its own ends the run."),
        _field("context", _ANY_OBJECT, "Values for `${context.…}`; arguments of a run go before them."),
        _field(
            "providers",
            {"type": "object", "propertyNames": {"pattern": NAME}, "additionalProperties": _one("provider")},
            "Templates of the programs that steps give a prompt to, by name.",
            below="provider",
        ),
        _folder("inbox_dir", "inbox", "Folder of task files that wait; a convention of workflows."),
        _folder("processed_dir", "processed", "Folder of finished task files; what the flags for cleaning act on."),
        _folder("failed_dir", "failed", "Folder of task files that failed; a convention of workflows."),
        _field("task_extension", _WORD | {"default": ".task"}, "Ending of task files; a convention of workflows."),
        _steps("What is done, in order."),
    ),
    "provider": (
        _field("command", _ARGV, "The program and its arguments.", filled=True, required=True),
        _field(
            "input_mode",
            {"type": "string", "enum": ["argv", "stdin"], "default": "argv"},
            "How the prompt is given: as `${PROMPT}`, or as standard input.",
        ),
        _field("defaults", _ANY_OBJECT, "Parameters, for steps that give no other value.", filled=True),
    ),
    "step": (
        _field("name", _STEP_NAME, "Unique among the steps beside it.", required=True),
        _field("agent", _WORD, "Label for people; nothing follows from it."),
        _field("provider", _WORD, "Provider that is given the prompt."),
        _field("provider_params", _ANY_OBJECT, "Parameters of the provider, before its defaults.", filled=True),
        _field("command", _ARGV, "Program and arguments; no shell reads them.", filled=True),
        _part("wait_for", "wait_for", "Files that are waited for."),
        _part("for_each", "for_each", "Steps that are taken once for each item."),
        _file("input_file", "Prompt of a provider, or standard input of a command; read as it is."),
        _file("output_file", "File that gets the whole standard output; its folders are created."),
        _field(
            "output_capture",
            {"type": "string", "enum": ["text", "lines", JSON], "default": "text"},
            "What is kept of standard output.",
        ),
        _field("allow_parse_error", _NO, "Whether output that is no JSON is kept as text; only with `json`."),
        _file("output_schema", "JSON Schema that the JSON must fit; only with `json`.", since="1.3"),
        _field(
            "output_require",
            {"type": "array", "items": _one("requirement"), "minItems": 1, "maxItems": 200},
            "What must stand in the JSON; only with `json`.",
            since="1.3",
            below="requirement",
        ),
        _field("env", _ENV, "Variables of the program's environment, passed on as they are."),
        _field("secrets", _SECRETS, "Variables of our own environment that the program must get, and nobody may see."),
        _part("depends_on", "depends_on", "Files that the step needs."),
        _field("timeout_sec", _SECONDS, "Longest duration, in seconds; then the step ends with 124."),
        _part("retries", "retries", "Further tries; by default those of the command line."),
        _part("when", "when", "What must hold; otherwise the step is skipped."),
        _part("on", "on", "Where the flow goes on."),
    ),
    "requirement": (
        _field("pointer", {"type": "string", "maxLength": 1000}, "JSON Pointer (RFC 6901).", required=True),
        _field("exists", _YES, "Whether there must be a value, or must be none."),
        _field("equals", _VALUE, "Value that must stand there, compared as JSON."),
        _field(
            "type",
            {"type": "string", "enum": ["string", "number", "boolean", "array", "object", "null"]},
            "Kind of the value that must stand there.",
        ),
    ),
    "wait_for": (
        _glob("glob", "Pattern of the files.", required=True),
        _field("timeout_sec", _SECONDS | {"default": 300}, "Longest wait, in seconds."),
        _field("poll_ms", _MS | {"minimum": 1, "default": 500}, "Time between two looks."),
        _field("min_count", _COUNT | {"minimum": 1, "default": 1}, "Files that are enough."),
    ),
    "depends_on": (
        _glob("required", "Patterns of files that must be there, at least one for each.", _GLOBS),
        _glob("optional", "Patterns of files that may be there.", _GLOBS),
        _field(
            "inject",
            {"type": ["boolean", "object"], "if": {"type": "object"}, "then": _one("injection")},
            "Whether the prompt tells of the files, and how; `true` is a list before the prompt.",
            since="1.1.1",
            below="injection",
        ),
    ),
    "injection": (
        _field(
            "mode",
            {"type": "string", "enum": ["list", "content", "none"], "default": "none"},
            "Names of the files, their contents, or nothing.",
        ),
        _field("instruction", _TEXT, "Text above the files; by default one that fits the mode."),
        _field(
            "position",
            {"type": "string", "enum": ["prepend", "append"], "default": "prepend"},
            "Whether the files stand before the prompt or after it.",
        ),
    ),
    "retries": (
        _field("max", _COUNT | {"maximum": 100}, "Tries after the first.", required=True),
        _field("delay_ms", _MS | {"default": 0}, "Time before each."),
    ),
    "when": (
        _part("equals", "equals", "Two texts that must be the same."),
        _glob("exists", "Pattern that must fit at least one file."),
        _glob("not_exists", "Pattern that must fit none."),
    ),
    "equals": (
        _field("left", _VALUE, "One of the texts; numbers and booleans count as JSON.", required=True, filled=True),
        _field("right", _VALUE, "The other one.", required=True, filled=True),
    ),
    "on": (
        _part("success", "goto", "After exit code 0."),
        _part("failure", "goto", "After any other exit code, when no try is left."),
        _part("always", "goto", "After both, where neither of them says anything."),
    ),
    "goto": (_field("goto", _WORD, "A step beside this one or around its loop, or `_end`.", required=True),),
    "for_each": (
        _field("items_from", _WORD, "List that an earlier step has made: `steps.NAME.lines`, `steps.NAME.json.a.b`."),
        _field("items", {"type": "array", "maxItems": 100_000}, "The items themselves, as they are."),
        _field("as", {"type": "string", "pattern": ALIAS, "default": "item"}, "Variable that holds the item."),
        _steps("What is done for each item, in order."),
        _part("on_item_complete", "on_item_complete", "Where the item's file goes afterwards.", since="1.2"),
    ),
    "on_item_complete": (
        _part("success", "move", "When each step of the item ended well, or its failure was caught.", since="1.2"),
        _part("failure", "move", "When a failure was not caught, or the flow left the loop early.", since="1.2"),
    ),
    "move": (
        Field(
            name="move_to",
            rule=_PATH,
            meaning="Folder that the file is moved to.",
            since="1.2",
            path="folder",
            filled=True,
        ),
    ),
}  # fmt: skip
"""All kinds of objects, each with its fields in order."""

OPTIONS: _Rule = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "on_error": {
            "type": "string",
            "enum": ["stop", "continue"],
            "description": "What follows a failure that the workflow says nothing about; before `strict_flow`.",
        },
        "max_retries": _COUNT | {"maximum": 100, "description": "Further tries of providers that say nothing."},
        "retry_delay_ms": _MS | {"description": "Time before each of those."},
        "debug": {"type": "boolean", "description": "Whether logs tell how each command was made."},
        "workflow_file": _PATH | {"description": "Path of the workflow's file, as the state shows it."},
    },
}
"""What a run of a workflow can be told beside its context."""

NOT_EMPTY = ("when", "on", "on_item_complete")
"""Kinds of objects that say nothing without a field."""


def found(
    kind: str, value: plain.Json, place: json_text.Parts = ()
) -> Iterator[tuple[json_text.Parts, Field, plain.Json]]:
    """Return every known field that is in an object or below it, with its place and value; what is malformed is passed
    by.
    """
    if not isinstance(value, dict):
        return
    for field in KINDS[kind]:
        if field.name not in value:
            continue
        item, here = value[field.name], (*place, field.name)
        yield here, field, item
        if field.below is not None:
            for parts, inner in _held(field, item):
                yield from found(field.below, inner, (*here, *parts))


def objects(
    kind: str, value: plain.Json, place: json_text.Parts = ()
) -> Iterator[tuple[json_text.Parts, str, Mapping[str, plain.Json]]]:
    """Return an object and every one below it, with place and kind."""
    if not isinstance(value, dict):
        return
    yield place, kind, value
    for field in KINDS[kind]:
        if field.below is not None and field.name in value:
            for parts, inner in _held(field, value[field.name]):
                yield from objects(field.below, inner, (*place, field.name, *parts))


def completed(kind: str, value: Mapping[str, plain.Json]) -> dict[str, plain.Json]:
    """Return a valid object with the defaults of all fields that it leaves out."""
    made: dict[str, plain.Json] = {}
    # What steps have by default concerns the output of a program.
    defaults = kind != "step" or "provider" in value or "command" in value
    for field in KINDS[kind]:
        if field.name in value:
            made[field.name] = _completed(field, value[field.name])
        elif "default" in field.rule and defaults:
            made[field.name] = field.rule["default"]
    return made


def _held(field: Field, item: plain.Json) -> Iterator[tuple[json_text.Parts, plain.Json]]:
    if isinstance(item, list):
        yield from (((index,), inner) for index, inner in enumerate(item))
    elif "additionalProperties" in field.rule:
        yield from (((name,), inner) for name, inner in (item.items() if isinstance(item, dict) else ()))
    else:
        yield (), item


def _completed(field: Field, item: plain.Json) -> plain.Json:
    if field.below is None:
        return item
    if isinstance(item, list):
        return [completed(field.below, inner) for inner in item]
    if "additionalProperties" in field.rule:
        return {name: completed(field.below, inner) for name, inner in item.items()}
    return completed(field.below, item) if isinstance(item, dict) else item
