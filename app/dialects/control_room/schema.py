"""The JSON Schema of control_room recipes (execution-modes, appendix B), for editors and for the parser."""

from __future__ import annotations

from app.dialects.control_room import done
from app.domain import frozen_agents, plain
from app.domain.json_schemas import closed, rule

VERSION = 1  # Increased if a recipe that was valid becomes invalid.
NAME = r"^[A-Za-z0-9_-]{1,64}$"  # Form of step ids and slot names.
RECIPE_ID = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"  # Form of recipe ids.

FORMS = {
    NAME: "must consist of letters, digits, _ and -, at most 64",
    RECIPE_ID: "must consist of letters, digits, _, . and -, at most 128, and begin with neither . nor -",
}
"""Forms of names, in words."""

_Schema = dict[str, plain.Json]

_ON_INTERRUPTED = ["rerun", "ask", "fail"]
_DAY_SECONDS = 24 * 60 * 60


def json_schema() -> _Schema:
    """Return the schema, strict: objects take only the fields that it names."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:control-room:schema:control_room:{VERSION}",
        "title": "Control Room recipe",
        "description": "A pipeline: tools, then agents, then the definition of done.",
        **_recipe(),
        "$defs": {
            "tool_step": _tool_step(),
            "agent_step": _agent_step(),
            "output": _output(),
            "check": _check(),
            "reference": _reference(),
            "path": _path(),
        },
    }


def _recipe() -> _Schema:
    return closed(
        required=["recipe_id"],
        **{"$schema": _text("Address of this schema, for editors.", maxLength=300)},
        recipe_id=_text("Unique id; a project's recipe shadows a bundled recipe with the same id.", pattern=RECIPE_ID),
        label=_text("Display name; by default the id.", minLength=1, maxLength=200),
        task_patterns={
            "type": "array",
            "items": {"type": "string"},
            "maxItems": 100,
            "description": "Phrases or regular expressions (/…/) that route a task to this recipe.",
        },
        args_schema={
            "type": "object",
            "description": "JSON Schema of the arguments; without it, each referenced task.args.X is required.",
        },
        phase_a=_list("tool_step", "Tool steps, in order; no model is used."),
        phase_b=_list("agent_step", "Agent steps, in order; each provides input for the next."),
        outputs=_list("output", "Files written after the last agent step and before the definition of done."),
        findings={"$ref": "#/$defs/reference", "description": "Reference to a list; each element becomes an issue."},
        dod=_list("check", "Definition of done: checks that the finished pipeline must pass."),
    )


def _tool_step() -> _Schema:
    return closed(
        required=["step_id", "tool", "output_slot"],
        step_id=_text("Key of the step in logs; unique in the recipe.", pattern=NAME),
        tool=_text("Id of the tool."),
        args={"type": "object", "description": "Arguments of the tool: values, or $ref objects at any depth."},
        output_slot=_text("Slot that stores the payload.", pattern=NAME),
        **_limits(),
    )


def _agent_step() -> _Schema:
    return closed(
        required=["step_id", "agent_archetype", "input_slots", "output_slot", "prompt_type"],
        step_id=_text("Key of the step in logs; unique in the recipe.", pattern=NAME),
        agent_archetype=_text("Role of the agent: planner, writer, editor, …"),
        input_slots=rule("array", "Slots that the prompt can reference.", items={"type": "string"}, maxItems=50),
        output_slot=_text("Slot that stores the reply.", pattern=NAME),
        prompt_type=_text("Key of the prompt template in the registry."),
        evidence={
            "type": "boolean",
            "default": False,
            "description": "Whether the reply must contain the evidence that the agent's role requires.",
        },
        reply_schema={
            "type": "object",
            "description": "JSON Schema of the object to reply with; backends that support it enforce it.",
        },
        **frozen_agents.LENGTH_FIELDS,
        **frozen_agents.IDLE_FIELDS,
        **_limits(),
    )


def _limits() -> _Schema:
    return {
        "timeout_seconds": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": _DAY_SECONDS,
            "description": "Wall-clock limit of the step; by default that of the tool or the backend.",
        },
        "on_interrupted": {
            "type": "string",
            "enum": _ON_INTERRUPTED,
            "description": "A restart reruns the step in flight (default), pauses the run (ask), or fails the step.",
        },
    }


def _output() -> _Schema:
    return closed(
        required=["slot", "path"],
        slot=_text("Slot of an agent step whose text is written."),
        path={"$ref": "#/$defs/path", "description": "File in the workspace."},
        overwrite=rule("boolean", "Whether an existing file is replaced; otherwise it fails the step.", default=False),
        otherwise={"$ref": "#/$defs/path", "description": "File to write if `path` already exists."},
    )


def _check() -> _Schema:
    kinds = {
        done.SLOT_NOT_NULL: _fields("slot"),
        done.SLOT_FIELD_EQUALS: _fields("slot", "field", "expected"),
        done.FILE_EXISTS: _fields("path"),
    }
    return {
        "type": "object",
        "required": ["check"],
        "properties": {"check": {"enum": list(kinds), "description": "Kind of the check."}},
        "allOf": [
            {"if": {"required": ["check"], "properties": {"check": {"const": kind}}}, "then": then}
            for kind, then in kinds.items()
        ],
    }


def _fields(*names: str) -> _Schema:
    fields: _Schema = {
        "slot": _text("Slot to inspect."),
        "field": _text("Dotted path inside the slot's value.", minLength=1),
        "expected": {"description": "Expected value, compared as JSON."},
        "path": {"$ref": "#/$defs/path", "description": "File that must exist in the workspace."},
    }
    return closed(required=["check", *names], check={}, **{name: fields[name] for name in names})


def _reference() -> _Schema:
    reference = {"type": "string", "description": "`task.…` or a slot, followed by names and [N]."}
    return closed(required=["$ref"], **{"$ref": reference})


def _path() -> _Schema:
    return _reference() | {
        "type": ["string", "object"],
        "minLength": 1,
        "maxLength": 1024,
        "description": "A path inside the workspace: a text, which can contain {{…}}, or a $ref object.",
    }


def _list(kind: str, description: str) -> _Schema:
    return {"type": "array", "items": {"$ref": f"#/$defs/{kind}"}, "maxItems": 200, "description": description}


def _text(description: str, **limits: plain.Json) -> _Schema:
    return rule("string", description, **limits)
