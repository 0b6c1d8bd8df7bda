"""Messages of WebSocket clients: strict in types and names, and bounded before they are parsed."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from app import errors
from app.api import connections, request_flaws
from app.domain import json_text, plain
from app.services import requests

OTHER_NAMES: Mapping[str, str] = {"ios_session_id": "session_id", "provider": "backend"}
"""Names of fields that are accepted in place of ours (orchestration-design, 1.2)."""

MOST_VALUES = 50_000  # Most values of a message.
MOST_FIELDS = 100  # Most fields of a message, known or unknown.
MAX_SEQ = 2**53  # Largest number of an event.

_NAME = Annotated[str, Field(min_length=1, max_length=200)]
_Key = Annotated[str, Field(pattern=requests.IDEMPOTENCY_KEY_PATTERN), pydantic.AfterValidator(requests.clients_key)]
_SHOWN_CHARACTERS = 80
_SHOWN_FAULTS = 10
_FLAW_CODES = {
    "too_deep": "too_deep",
    "too_large": "message_too_large",
    "too_many_values": "message_too_large",
    "lone_surrogate": "lone_surrogate",
}


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StartRecipe(_Message):
    """Start a recipe."""

    type: Literal["start_recipe"]
    recipe_id: _NAME
    session_id: _NAME | None = None
    working_directory: str | None = None
    args: dict[str, Any] = Field(default_factory=dict)
    backend: _NAME | None = None
    model: _NAME | None = None
    idempotency_key: _Key | None = None


class Prompt(_Message):
    """Send a prompt to an agent."""

    type: Literal["prompt"]
    text: str
    session_id: _NAME | None = None
    working_directory: str | None = None
    backend: _NAME | None = None
    model: _NAME | None = None
    system_prompt: str | None = None
    idempotency_key: _Key | None = None


class ExitRecipe(_Message):
    """Cancel the run of a conversation."""

    type: Literal["exit_recipe"]
    session_id: _NAME


class Subscribe(_Message):
    """Send the missed and the future messages of a conversation."""

    type: Literal["subscribe"]
    session_id: _NAME
    after_seq: int = Field(0, ge=0, le=MAX_SEQ)
    run_id: _NAME | None = None


class GetAvailableRecipes(_Message):
    """List the recipes."""

    type: Literal["get_available_recipes"]


Received = StartRecipe | Prompt | ExitRecipe | Subscribe | GetAvailableRecipes  # Messages that a client may send.

TYPES: Mapping[str, type[Received]] = {
    "start_recipe": StartRecipe,
    "prompt": Prompt,
    "exit_recipe": ExitRecipe,
    "subscribe": Subscribe,
    "get_available_recipes": GetAvailableRecipes,
}
"""Messages that a client may send, by `type`."""


def read(content: str | bytes, max_bytes: int) -> Received:
    """Return the message that a client has sent.

    Raises:
        errors.InputRefused: names the flaw with its position.
    """
    if isinstance(content, bytes):
        raise errors.RequestInvalid("messages are text, not binary", code="binary_message")
    if (refused := connections.NOT_TAKEN.get(content)) is not None:
        raise errors.RequestInvalid(refused[1], code=refused[0])
    if len(content) > max_bytes or len(content.encode(errors="replace")) > max_bytes:
        raise errors.TooLarge(f"the message is larger than {max_bytes} bytes", code="message_too_large")
    value = _value(content)
    if not isinstance(value, dict):
        raise _invalid("$: must be an object")
    if len(value) > MOST_FIELDS:
        raise _invalid(f"$: has more than {MOST_FIELDS} fields")
    kind = value.get("type")
    model = TYPES.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise _untyped(kind)
    fields, aliases = _renamed(value, model)
    try:
        return model.model_validate(fields)
    except pydantic.ValidationError as error:
        raise _unfit(error, model, aliases) from error


def _value(text: str) -> plain.Json:
    try:
        value = json_text.read(text, exact=True, most_values=MOST_VALUES)
    except errors.InputRefused as error:
        flaw = error.flaws[0]
        place = "" if flaw.path == "$" else f" at {flaw.path[:_SHOWN_CHARACTERS]}"
        code = _FLAW_CODES.get(flaw.code, "malformed_message")
        raise errors.RequestInvalid(f"the message{place} {flaw.message}", code=code) from error
    return value


def _renamed(value: dict[str, plain.Json], model: type[BaseModel]) -> tuple[dict[str, plain.Json], dict[str, str]]:
    """Return the fields under our names, without empty ones, and the names that were replaced."""
    fields, aliases = dict(value), {}
    for other, name in OTHER_NAMES.items():
        if other in fields and name in model.model_fields:
            item = fields.pop(other)
            if fields.get(name) is None:
                fields[name], aliases[name] = item, other
            elif item not in (None, fields[name]):
                raise _invalid(f"$.{other}: differs from {name}; send one of the two")
    known = {name: item for name, item in fields.items() if item is not None or name not in model.model_fields}
    return known, aliases


def _untyped(kind: plain.Json) -> errors.RequestInvalid:
    there = f"types are {', '.join(TYPES)}"
    if kind is None:
        return _invalid(f"$.type: is required; {there}")
    shown = json.dumps(kind, ensure_ascii=False)[:_SHOWN_CHARACTERS]
    message = f"$.type: {shown} is not a message type{_nearest(kind, TYPES)}; {there}"
    return errors.RequestInvalid(message, code="unknown_type")


def _unfit(
    error: pydantic.ValidationError, model: type[BaseModel], aliases: Mapping[str, str]
) -> errors.RequestInvalid:
    found = error.errors(include_url=False, include_input=False)
    fields = [name for name in model.model_fields if name != "type"]
    faults = []
    for fault in found[:_SHOWN_FAULTS]:
        first, *rest = (str(part)[:_SHOWN_CHARACTERS] for part in fault["loc"])
        unknown = fault["type"] == "extra_forbidden"
        wrong = f"is not known{_nearest(first, fields)}" if unknown else request_flaws.message(fault)
        faults.append(f"{json_text.json_path((aliases.get(first, first), *rest))}: {wrong}")
    if len(found) > _SHOWN_FAULTS:
        faults.append(f"{len(found) - _SHOWN_FAULTS} more")
    if any(fault["type"] == "extra_forbidden" for fault in found):
        faults.append(f"fields are {', '.join(fields)}" if fields else "there are no fields beside type")
    return _invalid("; ".join(faults))


def _nearest(name: plain.Json, names: Collection[str]) -> str:
    near = difflib.get_close_matches(str(name)[:_SHOWN_CHARACTERS], names, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _invalid(message: str) -> errors.RequestInvalid:
    return errors.RequestInvalid(message, code="message_invalid")
