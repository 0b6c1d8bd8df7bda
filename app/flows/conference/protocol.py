"""The chief's protocol: one JSON object per turn, which calls a tool or reports that no further call is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from app import errors
from app.domain import json_text, plain, records, slots
from app.engine import ports
from app.flows.conference import prompts

TEXT_CHARACTERS, LIST_ITEMS = 400, 10
"""Longest text and list in an argument that a schema lets a backend write: a small model does not
end by itself.
"""

_FENCE = "```"
_DONE = {
    "type": "object",
    "properties": {"done": {"type": "boolean", "enum": [True]}},
    "required": ["done"],
    "additionalProperties": False,
}
_KEPT = ("type", "enum", "const", "required", "minimum", "maximum", "minItems", "additionalProperties")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request to call a tool."""

    tool: str  # Name of the tool, existing or not.
    args: plain.Object  # Its arguments, valid or not.


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The report that no further call is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """A reply that is neither."""

    problem: str  # Its fault, worded to follow "your last reply" in a sentence.


Turn: TypeAlias = Call | Done | Unusable  # A turn of the chief.


def read(reply: str, *, exact: bool = True) -> Turn:
    """Read a reply: a JSON object, alone or in the only fenced block of the text."""
    try:
        value = json_text.read(_json_of(reply), exact=exact)
    except errors.InputRefused as refused:
        return Unusable(problem=refused.flaws[0].message if refused.flaws else refused.message)
    match value:
        case {"done": True} if len(value) == 1:
            return Done()
        # With fields beyond these, the object would not follow the protocol.
        case {"tool": str(tool)} if value.keys() <= {"tool", "args"} and isinstance(value.get("args", {}), dict):
            return Call(tool=tool, args=value.get("args", {}))
    return Unusable(problem="is JSON, but not one of the objects that can be answered with")


def reply_schema(tools: Mapping[str, plain.Object], *, must_call: bool) -> dict[str, plain.Json]:
    """Return the schema of a turn, for backends that support one."""
    calls = [_call(name, tool["args_schema"]) for name, tool in tools.items()]
    # The type beside the alternatives keeps services from taking them for a strict schema, which may have none there.
    return {"type": "object", "anyOf": calls if must_call else [*calls, _DONE]}


def _json_of(reply: str) -> str:
    lines = reply.strip().split("\n")
    fences = [number for number, line in enumerate(lines) if line.strip().startswith(_FENCE)]
    return "\n".join(lines[fences[0] + 1 : fences[1]]) if len(fences) == 2 else "\n".join(lines)


def _call(name: str, args_schema: plain.Object) -> dict[str, plain.Json]:
    return {
        "type": "object",
        "properties": {"tool": {"type": "string", "enum": [name]}, "args": _bounded(args_schema)},
        "required": ["tool", "args"],
        "additionalProperties": False,
    }


def _bounded(schema: Any) -> Any:
    """Return a schema that every backend supports, with limits for texts and lists; the tool validates arguments."""
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, Any] = {name: schema[name] for name in _KEPT if name in schema}
    if "properties" in schema:
        kept["properties"] = {name: _bounded(rule) for name, rule in schema["properties"].items()}
    if schema.get("type") == "string" and "enum" not in schema:
        # Without a limit, some models never end a text.
        kept["maxLength"] = min(schema.get("maxLength", TEXT_CHARACTERS), TEXT_CHARACTERS)
    if schema.get("type") == "array":
        kept["items"] = _bounded(schema.get("items", {}))
        kept["maxItems"] = min(schema.get("maxItems", LIST_ITEMS), LIST_ITEMS)
    return kept


class StepCounter:
    """Show the number of finished steps."""

    def __init__(self, ctx: ports.Context) -> None:
        self._ctx = ctx
        self._finished = 0
        self._ctx.show(slots.Progress())

    def finish(self) -> None:
        """Count one more finished step."""
        self._finished += 1
        self._ctx.show(slots.Progress(finished_steps=self._finished))


def slots_of(called: Sequence[prompts.Called]) -> tuple[str, ...]:
    """Return the slots that calls have filled."""
    return tuple(call.key for call in called if call.payload is not None)


def failed(record: records.Record, what: str, reason: str) -> errors.RunFailed:
    """Return the run's failure for a step that is not done."""
    error = record.error or records.StepError(code="step_failed", message=record.status.value)
    return errors.RunFailed(
        f"{what}: {error.message}",
        code=error.code,
        reason=reason,
        key=record.key,
        detail=dict(error.detail),
        causes=(record.key,),
    )
