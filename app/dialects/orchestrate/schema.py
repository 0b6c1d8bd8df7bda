"""The schema of workflows: a table per kind of object gives JSON Schemas, defaults and load-time checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app.dialects import field_tables
from app.dialects.field_tables import ENV, MOST_SECONDS, NO, SECRETS, WORD, Field, field, one, part, several
from app.domain import json_text, plain

VERSIONS = ("1.1", "1.1.1", "1.2", "1.3")
"""Versions of the language, oldest first (workflow-dsl, version gating summary)."""
NEWEST = VERSIONS[-1]  # The version that has every field.
FORMS = ("provider", "command", "wait_for", "for_each")  # Fields of which each step has exactly one: its action.
END = "_end"  # Target of a `goto` that ends the run successfully.
JSON = "json"  # Capture mode whose output is parsed.

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
"""Form of the names of steps, which variables, keys and names of logs contain; `_end` does not have this form."""
ALIAS = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"  # Form of the name of a loop's item.


_YES = {"type": "boolean", "default": True}
_TEXT = {"type": "string", "minLength": 1, "maxLength": 20_000}
_PATH = {"type": "string", "minLength": 1, "maxLength": 4096}
_STEP_NAME = {"type": "string", "pattern": NAME}
_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_SECONDS}
_MS = {"type": "number", "minimum": 0, "maximum": 24 * 60 * 60 * 1000}
_COUNT = {"type": "integer", "minimum": 0, "maximum": 100_000}
_ARGV = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 10_000}
_GLOBS = {"type": "array", "items": _PATH, "maxItems": 1_000}
_VALUE = {"type": ["string", "number", "boolean", "null"]}
_ANY_OBJECT = {"type": "object"}


def _glob(name: str, meaning: str, rule: field_tables.Rule = _PATH, **more: plain.Json) -> Field:
    return Field(name=name, rule=rule, meaning=meaning, path="glob", filled=True, **more)


def _file(name: str, meaning: str, **more: plain.Json) -> Field:
    return Field(name=name, rule=_PATH, meaning=meaning, path="file", filled=True, **more)


def _folder(name: str, default: str, meaning: str) -> Field:
    return Field(name=name, rule=_PATH | {"default": default}, meaning=meaning, path="folder")


def _steps(meaning: str) -> Field:
    return Field(name="steps", rule=several("step"), meaning=meaning, below="step", required=True)


KINDS: Mapping[str, tuple[Field, ...]] = {
    "workflow": (
        field("version", {"enum": list(VERSIONS), "type": "string"}, "Version of the language.", required=True),
        field("name", WORD, "Name for people; by default the name of the file."),
        field("strict_flow", _YES, "Whether a step that fails without a `goto` of its own ends the run."),
        field("context", _ANY_OBJECT, "Values for `${context.…}`; arguments of a run go before them."),
        field(
            "providers",
            {"type": "object", "propertyNames": {"pattern": NAME}, "additionalProperties": one("provider")},
            "Templates of the programs that steps give a prompt to, by name.",
            below="provider",
        ),
        _folder("inbox_dir", "inbox", "Folder of task files that wait; a convention of workflows."),
        _folder("processed_dir", "processed", "Folder of finished task files; what the flags for cleaning act on."),
        _folder("failed_dir", "failed", "Folder of task files that failed; a convention of workflows."),
        field("task_extension", WORD | {"default": ".task"}, "Ending of task files; a convention of workflows."),
        _steps("The steps, in order."),
    ),
    "provider": (
        field("command", _ARGV, "The program and its arguments.", filled=True, required=True),
        field(
            "input_mode",
            {"type": "string", "enum": ["argv", "stdin"], "default": "argv"},
            "How the prompt is given: as `${PROMPT}`, or as standard input.",
        ),
        field("defaults", _ANY_OBJECT, "Parameters, for steps that give no other value.", filled=True),
    ),
    "step": (
        field("name", _STEP_NAME, "Unique among the steps beside it.", required=True),
        field("agent", WORD, "Label for people; nothing follows from it."),
        field("provider", WORD, "Provider that is given the prompt."),
        field("provider_params", _ANY_OBJECT, "Parameters of the provider, before its defaults.", filled=True),
        field("command", _ARGV, "Program and arguments; no shell reads them.", filled=True),
        part("wait_for", "wait_for", "Files that are waited for."),
        part("for_each", "for_each", "Steps that are taken once for each item."),
        _file("input_file", "Prompt of a provider, or standard input of a command; read as it is."),
        _file("output_file", "File that gets the whole standard output; its folders are created."),
        field(
            "output_capture",
            {"type": "string", "enum": ["text", "lines", JSON], "default": "text"},
            "How standard output is captured.",
        ),
        field("allow_parse_error", NO, "Whether output that is not JSON is kept as text; only with `json`."),
        _file("output_schema", "JSON Schema that the JSON must fit; only with `json`.", since="1.3"),
        field(
            "output_require",
            {"type": "array", "items": one("requirement"), "minItems": 1, "maxItems": 200},
            "Requirements on the JSON; only with `json`.",
            since="1.3",
            below="requirement",
        ),
        field("env", ENV, "Variables of the program's environment, passed on as they are."),
        field("secrets", SECRETS, "Environment variables that the program must get; their values are masked."),
        part("depends_on", "depends_on", "Files that the step needs."),
        field("timeout_sec", _SECONDS, "Longest duration, in seconds; then the step ends with 124."),
        field("idle_seconds", field_tables.IDLE, "Longest silence, in seconds; then the step ends with 124."),
        part("retries", "retries", "Further tries; by default those of the command line."),
        part("when", "when", "What must hold; otherwise the step is skipped."),
        part("on", "on", "The step that follows, by outcome."),
    ),
    "requirement": (
        field("pointer", {"type": "string", "maxLength": 1000}, "JSON Pointer (RFC 6901).", required=True),
        field("exists", _YES, "Whether there must be a value, or must be none."),
        field("equals", _VALUE, "Value that must stand there, compared as JSON."),
        field(
            "type",
            {"type": "string", "enum": ["string", "number", "boolean", "array", "object", "null"]},
            "Kind of the value that must stand there.",
        ),
    ),
    "wait_for": (
        _glob("glob", "Pattern of the files.", required=True),
        field("timeout_sec", _SECONDS | {"default": 300}, "Longest wait, in seconds."),
        field("poll_ms", _MS | {"minimum": 1, "default": 500}, "Time between two looks."),
        field("min_count", _COUNT | {"minimum": 1, "default": 1}, "Files that are enough."),
    ),
    "depends_on": (
        _glob("required", "Patterns of files that must be there, at least one for each.", _GLOBS),
        _glob("optional", "Patterns of files that may be there.", _GLOBS),
        field(
            "inject",
            {"type": ["boolean", "object"], "if": {"type": "object"}, "then": one("injection")},
            "Whether and how the prompt lists the files; `true` puts a list before the prompt.",
            since="1.1.1",
            below="injection",
        ),
    ),
    "injection": (
        field(
            "mode",
            {"type": "string", "enum": ["list", "content", "none"], "default": "none"},
            "Names of the files, their contents, or nothing.",
        ),
        field("instruction", _TEXT, "Text above the files; by default one that fits the mode."),
        field(
            "position",
            {"type": "string", "enum": ["prepend", "append"], "default": "prepend"},
            "Whether the files stand before the prompt or after it.",
        ),
    ),
    "retries": (
        field("max", _COUNT | {"maximum": 100}, "Tries after the first.", required=True),
        field("delay_ms", _MS | {"default": 0}, "Time before each."),
    ),
    "when": (
        part("equals", "equals", "Two texts that must be the same."),
        _glob("exists", "Pattern that must fit at least one file."),
        _glob("not_exists", "Pattern that must fit none."),
    ),
    "equals": (
        field("left", _VALUE, "One of the texts; numbers and booleans count as JSON.", required=True, filled=True),
        field("right", _VALUE, "The other one.", required=True, filled=True),
    ),
    "on": (
        part("success", "goto", "After exit code 0."),
        part("failure", "goto", "After any other exit code, when no try is left."),
        part("always", "goto", "After both, where neither of them says anything."),
    ),
    "goto": (field("goto", WORD, "A step beside this one or around its loop, or `_end`.", required=True),),
    "for_each": (
        field("items_from", WORD, "List that an earlier step has made: `steps.NAME.lines`, `steps.NAME.json.a.b`."),
        field("items", {"type": "array", "maxItems": 100_000}, "The items themselves, as they are."),
        field("as", {"type": "string", "pattern": ALIAS, "default": "item"}, "Variable that holds the item."),
        _steps("The steps for each item, in order."),
        part("on_item_complete", "on_item_complete", "Where the item's file goes afterwards.", since="1.2"),
    ),
    "on_item_complete": (
        part("success", "move", "When each step of the item ended well, or its failure was caught.", since="1.2"),
        part("failure", "move", "When a failure was not caught, or the flow left the loop early.", since="1.2"),
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

OPTIONS: field_tables.Rule = {
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
        "debug": {"type": "boolean", "description": "Whether logs show how each command was built."},
        "workflow_file": _PATH | {"description": "Path of the workflow's file, as the state shows it."},
    },
}
"""Options of a workflow's run, besides its context."""

NOT_EMPTY = ("when", "on", "on_item_complete")  # Kinds of objects that must have a field.


def found(
    kind: str, value: plain.Json, place: json_text.Parts = ()
) -> Iterator[tuple[json_text.Parts, Field, plain.Json]]:
    """Return every known field in an object or below it, with its place and value; malformed objects are skipped."""
    if not isinstance(value, dict):
        return
    for own in KINDS[kind]:
        if own.name not in value:
            continue
        item, here = value[own.name], (*place, own.name)
        yield here, own, item
        if own.below is not None:
            for parts, inner in _held(own, item):
                yield from found(own.below, inner, (*here, *parts))


def objects(
    kind: str, value: plain.Json, place: json_text.Parts = ()
) -> Iterator[tuple[json_text.Parts, str, plain.Object]]:
    """Return an object and every one below it, with place and kind."""
    if not isinstance(value, dict):
        return
    yield place, kind, value
    for own in KINDS[kind]:
        if own.below is not None and own.name in value:
            for parts, inner in _held(own, value[own.name]):
                yield from objects(own.below, inner, (*place, own.name, *parts))


def completed(kind: str, value: plain.Object) -> dict[str, plain.Json]:
    """Return a valid object with the defaults of all fields that it leaves out."""
    made: dict[str, plain.Json] = {}
    # The defaults of steps concern the output of a program.
    defaults = kind != "step" or "provider" in value or "command" in value
    for own in KINDS[kind]:
        if own.name in value:
            made[own.name] = _completed(own, value[own.name])
        elif "default" in own.rule and defaults:
            made[own.name] = own.rule["default"]
    return made


def _held(own: Field, item: plain.Json) -> Iterator[tuple[json_text.Parts, plain.Json]]:
    if isinstance(item, list):
        yield from (((index,), inner) for index, inner in enumerate(item))
    elif "additionalProperties" in own.rule:
        yield from (((name,), inner) for name, inner in (item.items() if isinstance(item, dict) else ()))
    else:
        yield (), item


def _completed(own: Field, item: plain.Json) -> plain.Json:
    if own.below is None:
        return item
    if isinstance(item, list):
        return [completed(own.below, inner) for inner in item]
    if "additionalProperties" in own.rule:
        return {name: completed(own.below, inner) for name, inner in item.items()}
    return completed(own.below, item) if isinstance(item, dict) else item


def json_schema(version: str = NEWEST) -> field_tables.Schema:
    """Return the schema of one version, strict: objects take only the fields that the version names."""
    kinds = field_tables.objects(KINDS, "workflow", version)
    for kind in kinds.keys() & set(NOT_EMPTY):
        kinds[kind]["minProperties"] = 1
    workflow = kinds.pop("workflow")
    workflow["properties"]["version"] = KINDS["workflow"][0].schema() | {"enum": [version]}
    kinds["step"] |= {
        "oneOf": [{"required": [form]} for form in FORMS],
        "dependentRequired": {"provider_params": ["provider"]},
    }
    kinds["for_each"] |= {"oneOf": [{"required": ["items"]}, {"required": ["items_from"]}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:control-room:schema:orchestrate:{version}",
        "title": f"Orchestrate workflow {version}",
        "description": "Commands and providers in order, with conditions, jumps and loops; files are their queues.",
        **workflow,
        "$defs": kinds,
    }


def published() -> dict[str, field_tables.Schema]:
    """Return the schemas of all versions by the names of their files."""
    return {f"orchestrate-{version}": json_schema(version) for version in VERSIONS}
