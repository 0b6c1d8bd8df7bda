"""Explanations: the likely meaning of an unknown field, and the right form of a value of the wrong type."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

from app import errors
from app.dialects.orchestrate import schema
from app.domain import json_text, plain

_VARIABLE = re.compile(r"\$\{[^{}]*\}")
_GONE = {"command_override": "is not supported; write the whole call as the `command` of a step without `provider`"}

_LATER: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "workflow": {
        "1.2": ("artifacts",),
        "1.8": ("max_transitions",),
        "2.1": ("inputs", "outputs"),
        "2.3": ("finally",),
        "2.5": ("imports",),
        "2.15": ("result_guidance",),
    },
    "provider": {"2.10": ("session_support",), "2.17": ("interactive_session_support",)},
    "step": {
        "1.2": (
            "publishes", "consumes", "inject_consumes", "consumes_injection_position", "prompt_consumes",
            "expected_outputs", "persist_artifacts_in_state", "inject_output_contract",
        ),
        "1.3": ("output_bundle", "consume_bundle"),
        "1.5": ("assert",),
        "1.7": ("set_scalar", "increment_scalar"),
        "1.8": ("max_visits",),
        "2.0": ("id",),
        "2.2": ("if", "then", "else"),
        "2.5": ("call", "with", "asset_file", "asset_depends_on"),
        "2.6": ("match",),
        "2.7": ("repeat_until",),
        "2.10": ("provider_session",),
        "2.11": ("adjudicated_provider",),
        "2.13": ("managed_jobs",),
        "2.14": (
            "materialize_artifacts", "pre_snapshot", "variant_output", "select_variant_output", "requires_variant",
        ),
    },
    "when": {"1.6": ("artifact_bool", "compare", "all_of", "any_of", "not"), "2.8": ("score",)},
}  # fmt: skip
"""Fields of the language's later versions upstream, by kind of object and version."""
LATER_VERSIONS = tuple(
    sorted(
        {version for kind in _LATER.values() for version in kind if version not in schema.VERSIONS} | {"1.4", "2.4"},
        key=lambda version: tuple(map(int, version.split("."))),
    )
)
"""Upstream versions that do not exist here."""

_MEANT: Mapping[str, Mapping[str, str]] = {
    "workflow": {
        "vars": "context", "variables": "context", "env": "steps: [{env: …}]",
        "secrets": "steps: [{secrets: …}]",
        "strict": "strict_flow", "title": "name", "jobs": "steps", "tasks": "steps",
    },
    "provider": {
        "cmd": "command", "argv": "command", "args": "command", "mode": "input_mode", "stdin": "input_mode",
        "params": "defaults", "model": "defaults: {model: …}",
    },
    "step": {
        "args": "command", "argv": "command", "cmd": "command", "exec": "command", "run": "command",
        "script": "command", "shell": "command",
        "prompt": "input_file", "prompt_file": "input_file", "input": "input_file", "stdin": "input_file",
        "output": "output_file", "stdout": "output_file", "capture": "output_capture", "schema": "output_schema",
        "require": "output_require", "timeout": "timeout_sec", "timeout_seconds": "timeout_sec",
        "timeout_ms": "timeout_sec", "retry": "retries", "max_retries": "retries: {max: …}",
        "condition": "when", "unless": "when", "depends": "depends_on", "dependencies": "depends_on",
        "needs": "depends_on", "requires": "depends_on", "inject": "depends_on: {inject: …}",
        "required": "depends_on: {required: …}", "optional": "depends_on: {optional: …}",
        "each": "for_each", "for": "for_each", "foreach": "for_each", "loop": "for_each",
        "items": "for_each: {items: …}", "items_from": "for_each: {items_from: …}", "steps": "for_each: {steps: …}",
        "environment": "env", "model": "provider_params: {model: …}", "params": "provider_params",
        "goto": "on: {success: {goto: …}}", "next": "on: {success: {goto: …}}",
        "on_success": "on: {success: {goto: …}}", "on_failure": "on: {failure: {goto: …}}",
        "on_error": "on: {failure: {goto: …}}", "wait": "wait_for", "glob": "wait_for: {glob: …}",
    },
    "wait_for": {
        "count": "min_count", "files": "glob", "path": "glob", "pattern": "glob", "poll": "poll_ms",
        "poll_interval": "poll_ms", "timeout": "timeout_sec",
    },
    "retries": {"attempts": "max", "count": "max", "delay": "delay_ms", "delay_sec": "delay_ms", "times": "max"},
    "on": {"complete": "always", "error": "failure", "fail": "failure", "finally": "always", "ok": "success"},
    "for_each": {"from": "items_from", "in": "items", "item": "as", "list": "items", "name": "as", "do": "steps"},
    "depends_on": {"files": "required", "requires": "required"},
    "injection": {"prompt": "instruction", "text": "instruction", "type": "mode", "where": "position"},
    "requirement": {"path": "pointer", "value": "equals", "is": "equals"},
    "when": {"equal": "equals", "eq": "equals", "file_exists": "exists", "missing": "not_exists"},
}  # fmt: skip
"""Fields that people write, and the valid fields that they mean."""


def explained(found: Iterable[errors.Flaw], document: plain.Json, version: str) -> Iterator[errors.Flaw]:
    """Explain for unknown fields, and for values of a wrong type, what to write.

    Args:
        version: The version against which the document was checked.
    """
    listed = list(found)
    places = {
        json_text.json_path((*place, name)): (kind, name, item)
        for place, kind, value in schema.objects("workflow", document if listed else None)
        for name, item in value.items()
    }
    for flaw in listed:
        kind, name, value = places.get(flaw.path, ("", "", None))
        if flaw.code == "unknown_field" and kind:
            code, message = _of_unknown(kind, name, version)
            yield dataclasses.replace(flaw, code=code, message=message)
        elif flaw.code == "wrong_type" and (form := _form(kind, name, value)):
            yield dataclasses.replace(flaw, message=f"{flaw.message}; write `{form}`")
        elif value == {} and name in schema.NOT_EMPTY:
            fields = ", ".join(field.name for field in schema.KINDS[name] if field.known_in(version))
            yield dataclasses.replace(flaw, message=f"is empty; its fields are {fields}")
        else:
            yield flaw


def _of_unknown(kind: str, name: str, version: str) -> tuple[str, str]:
    if name in _GONE:
        return "removed_field", _GONE[name]
    own = next((field for field in schema.KINDS[kind] if field.name == name), None)
    if own is not None:
        return "needs_version", f'needs version: "{own.since}" or higher; this workflow says "{version}"'
    known = [field.name for field in schema.KINDS[kind] if field.known_in(version)]
    listed = f"its fields are {', '.join(known)}"
    later = next((since for since, names in _LATER.get(kind, {}).items() if name in names), None)
    if later is not None:
        message = f"belongs to upstream's version {later}; Control Room runs {', '.join(schema.VERSIONS)}"
        return "later_field", f"{message}; {listed}"
    return "unknown_field", f"is not a known field{_guess(kind, name, known)}; {listed}"


def _guess(kind: str, name: str, known: list[str]) -> str:
    bare = name.lower().replace("-", "_")
    meant = _MEANT.get(kind, {}).get(bare) or next(iter(difflib.get_close_matches(bare[:100], known, 1)), None)
    if meant is None or meant.partition(":")[0] not in known:
        return ""
    return f"; did you mean {meant}?" if meant.isidentifier() else f"; did you mean `{meant}`?"


def _form(kind: str, name: str, value: plain.Json) -> str | None:
    """Return the form that a value should have; None if there is no advice."""
    match name, value:
        case "command", str() if kind in ("step", "provider"):
            return f"command: {_argv(value)}"
        case "retries", _ if kind == "step":
            is_number = isinstance(value, int) and not isinstance(value, bool)
            return f"retries: {{max: {value if is_number else 2}}}"
        case "secrets" | "required" | "optional", str():
            return f"{name}: [{_quoted(value)}]"
        case "depends_on", str() | list():
            return f"depends_on: {{required: {_quoted([value] if isinstance(value, str) else value)}}}"
        case "wait_for", str():
            return f"wait_for: {{glob: {_quoted(value)}}}"
        case "for_each", str() | list():
            source = f"items_from: {_quoted(value)}" if isinstance(value, str) else f"items: {_quoted(value)}"
            return f"for_each: {{{source}, steps: […]}}"
        case "success" | "failure" | "always", str() if kind == "on":
            return f"{name}: {{goto: {_quoted(value)}}}"
        case "when", _ if kind == "step":
            return "when: {equals: {left: …, right: …}}"
        case "on", _ if kind == "step":
            return "on: {failure: {goto: …}}"
    return None


def _argv(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    # Text that only a shell can interpret is left to a shell; a variable is not such text.
    if not words or any(character in _VARIABLE.sub("", text) for character in "|&;<>()$`*?[]{}~#\n"):
        words = ["bash", "-c", text]
    return _quoted(words)


def _quoted(value: plain.Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else "[…]" if isinstance(value, list) else "…"
