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
NAME_FORMS = {
    NAME: "must consist of letters, digits, _ and -, at most 64, and begin with a letter or digit",
    ALIAS: "must consist of letters, digits and _, at most 64, and not begin with a digit",
}
"""Forms of names, in words."""


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
        field("name", WORD, "Display name; by default the name of the file."),
        field("strict_flow", _YES, "Whether a failed step without a matching `goto` ends the run."),
        field("context", _ANY_OBJECT, "Values for `${context.…}`; arguments of a run override them."),
        field(
            "providers",
            {"type": "object", "propertyNames": {"pattern": NAME}, "additionalProperties": one("provider")},
            "Templates of programs that receive prompts, by name.",
            below="provider",
        ),
        _folder("inbox_dir", "inbox", "Folder of waiting task files; a convention of workflows."),
        _folder("processed_dir", "processed", "Folder of finished task files; the command can clean or archive it."),
        _folder("failed_dir", "failed", "Folder of failed task files; a convention of workflows."),
        field("task_extension", WORD | {"default": ".task"}, "Extension of task files; a convention of workflows."),
        _steps("The steps, in order."),
    ),
    "provider": (
        field("command", _ARGV, "The program and its arguments.", filled=True, required=True),
        field(
            "input_mode",
            {"type": "string", "enum": ["argv", "stdin"], "default": "argv"},
            "How the program receives the prompt: as `${PROMPT}` or on standard input.",
        ),
        field("defaults", _ANY_OBJECT, "Default values of parameters.", filled=True),
    ),
    "step": (
        field("name", _STEP_NAME, "Name, unique among the steps at the same level.", required=True),
        field("agent", WORD, "Label for people; it has no effect."),
        field("provider", WORD, "Provider that receives the prompt."),
        field("provider_params", _ANY_OBJECT, "Parameters of the provider; they override its defaults.", filled=True),
        field("command", _ARGV, "Program and arguments, executed without a shell.", filled=True),
        part("wait_for", "wait_for", "Files to wait for."),
        part("for_each", "for_each", "Steps to execute once for each item."),
        _file("input_file", "Prompt of a provider, or standard input of a command; used without substitution."),
        _file("output_file", "File that receives the whole standard output; its folders are created."),
        field(
            "output_capture",
            {"type": "string", "enum": ["text", "lines", JSON], "default": "text"},
            "How standard output is captured.",
        ),
        field("allow_parse_error", NO, "Whether invalid JSON is kept as text; only with `json`."),
        _file("output_schema", "JSON Schema that the JSON must match; only with `json`.", since="1.3"),
        field(
            "output_require",
            {"type": "array", "items": one("requirement"), "minItems": 1, "maxItems": 200},
            "Requirements on the JSON; only with `json`.",
            since="1.3",
            below="requirement",
        ),
        field("env", ENV, "Environment variables of the program, passed without substitution."),
        field("secrets", SECRETS, "Environment variables that the program requires; their values are masked."),
        part("depends_on", "depends_on", "Files that the step needs."),
        field("timeout_sec", _SECONDS, "Maximum duration of an attempt, in seconds; by default 24 hours."),
        field("idle_seconds", field_tables.IDLE, "Maximum silence of an attempt, in seconds; by default the setting."),
        part("retries", "retries", "Retries; by default those set on the command line."),
        part("when", "when", "Condition; if it is false, the step is skipped."),
        part("on", "on", "Next step, by outcome."),
    ),
    "requirement": (
        field("pointer", {"type": "string", "maxLength": 1000}, "JSON Pointer (RFC 6901).", required=True),
        field("exists", _YES, "Whether the value must exist or must be absent."),
        field("equals", _VALUE, "Expected value, compared as JSON."),
        field(
            "type",
            {"type": "string", "enum": ["string", "number", "boolean", "array", "object", "null"]},
            "Expected type of the value.",
        ),
    ),
    "wait_for": (
        _glob("glob", "Pattern of the files.", required=True),
        field("timeout_sec", _SECONDS | {"default": 300}, "Maximum wait, in seconds."),
        field("poll_ms", _MS | {"minimum": 1, "default": 500}, "Milliseconds between two checks."),
        field("min_count", _COUNT | {"minimum": 1, "default": 1}, "Minimum number of matching files."),
    ),
    "depends_on": (
        _glob("required", "Patterns of required files; each must match at least one.", _GLOBS),
        _glob("optional", "Patterns of optional files.", _GLOBS),
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
            "What to insert: the names of the files, their contents, or nothing.",
        ),
        field("instruction", _TEXT, "Text above the files; the default depends on the mode."),
        field(
            "position",
            {"type": "string", "enum": ["prepend", "append"], "default": "prepend"},
            "Whether the files are inserted before or after the prompt.",
        ),
    ),
    "retries": (
        field("max", _COUNT | {"maximum": 100}, "Number of retries.", required=True),
        field("delay_ms", _MS | {"default": 0}, "Milliseconds before each retry."),
    ),
    "when": (
        part("equals", "equals", "Two texts that must be equal."),
        _glob("exists", "Pattern that must match at least one file."),
        _glob("not_exists", "Pattern that must not match any file."),
    ),
    "equals": (
        field("left", _VALUE, "First text; numbers and booleans are compared as JSON.", required=True, filled=True),
        field("right", _VALUE, "Second text.", required=True, filled=True),
    ),
    "on": (
        part("success", "goto", "Next step after exit code 0."),
        part("failure", "goto", "Next step after any other exit code, once no retry is left."),
        part("always", "goto", "Next step after any exit code, if the field for that outcome is not set."),
    ),
    "goto": (field("goto", WORD, "A step at this level or at that of an enclosing loop, or `_end`.", required=True),),
    "for_each": (
        field("items_from", WORD, "List from an earlier step: `steps.NAME.lines`, `steps.NAME.json.a.b`."),
        field("items", {"type": "array", "maxItems": 100_000}, "The items, without substitution of variables."),
        field("as", {"type": "string", "pattern": ALIAS, "default": "item"}, "Variable that holds the item."),
        _steps("The steps for each item, in order."),
        part("on_item_complete", "on_item_complete", "Where the item's file is moved afterwards.", since="1.2"),
    ),
    "on_item_complete": (
        part("success", "move", "If every step of the item succeeded, or its failure was handled.", since="1.2"),
        part("failure", "move", "If a failure was not handled, or the flow left the loop early.", since="1.2"),
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
            "description": "What to do after a failure that the workflow does not handle; overrides `strict_flow`.",
        },
        "max_retries": _COUNT
        | {"maximum": 100, "description": "Number of retries for providers without `retries` of their own."},
        "retry_delay_ms": _MS | {"description": "Milliseconds before each of these retries."},
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
