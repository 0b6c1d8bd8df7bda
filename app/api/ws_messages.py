"""
Messages of clients on the WebSocket: strict in types and names, and bounded before they are read.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from app import errors
from app.api import wording
from app.control import requests
from app.engine import json_text, plain

NOT_TAKEN: Mapping[str, tuple[str, str]] = {
    "\0too large": ("message_too_large", "the message is larger than this service takes"),
    "\0not text": ("not_text", "the message is not UTF-8"),
}
"""What stands in the place of messages that were not let through, with code and sentence of their errors."""

MAX_SEQ = 2**53
"""Largest number of an event."""

_NAME = Annotated[str, Field(min_length=1, max_length=200)]
_Key = Annotated[str, Field(pattern=requests.IDEMPOTENCY_KEY_PATTERN)]
_SHOWN_CHARACTERS = 80
_FLAW_CODES = {"too_deep": "too_deep", "too_large": "message_too_large"}


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StartRecipe(_Message):
    """
    Start a recipe.
    """

    type: Literal["start_recipe"]
    recipe_id: _NAME
    session_id: _NAME | None = None
    working_directory: str | None = None
    args: dict[str, Any] = Field(default_factory=dict)
    backend: _NAME | None = None
    model: _NAME | None = None
    idempotency_key: _Key | None = None


class Prompt(_Message):
    """
    Say something to an agent.
    """

    type: Literal["prompt"]
    text: str
    session_id: _NAME | None = None
    working_directory: str | None = None
    backend: _NAME | None = None
    model: _NAME | None = None
    system_prompt: str | None = None
    idempotency_key: _Key | None = None


class ExitRecipe(_Message):
    """
    Cancel what runs in a conversation.
    """

    type: Literal["exit_recipe"]
    session_id: _NAME


class Subscribe(_Message):
    """
    Tell what was missed in a conversation, and go on telling.
    """

    type: Literal["subscribe"]
    session_id: _NAME
    after_seq: int = Field(0, ge=0, le=MAX_SEQ)
    run_id: _NAME | None = None


class GetAvailableRecipes(_Message):
    """
    List the recipes.
    """

    type: Literal["get_available_recipes"]


Received = StartRecipe | Prompt | ExitRecipe | Subscribe | GetAvailableRecipes
"""What a client may send."""

_TYPES: Mapping[str, type[Received]] = {
    "start_recipe": StartRecipe,
    "prompt": Prompt,
    "exit_recipe": ExitRecipe,
    "subscribe": Subscribe,
    "get_available_recipes": GetAvailableRecipes,
}


def read(content: str | bytes, max_bytes: int) -> Received:
    """
    Return the message that a client has sent.

    Raises:
        errors.InputRefused: what is wrong with it, and where.
    """
    if isinstance(content, bytes):
        raise errors.RequestInvalid("messages are text, not binary", code="binary_message")
    if (refused := NOT_TAKEN.get(content)) is not None:
        raise errors.RequestInvalid(refused[1], code=refused[0])
    if len(content) > max_bytes or len(content.encode(errors="replace")) > max_bytes:
        raise errors.TooLarge(f"the message is larger than {max_bytes} bytes", code="message_too_large")
    value = _value(content)
    if not isinstance(value, dict):
        raise _invalid("$", "is no object")
    kind = value.get("type")
    if kind is None:
        raise _invalid("$.type", "is required")
    model = _TYPES.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise errors.RequestInvalid(f"$.type: {_unknown(kind)}", code="unknown_type")
    try:
        return model.model_validate(_given(value, model))
    except pydantic.ValidationError as error:
        raise _unfit(error, model) from error


def _value(text: str) -> plain.Json:
    try:
        value = json_text.read(text)
    except errors.InputRefused as error:
        flaw = error.flaws[0]
        place = "" if flaw.path == "$" else f" at {flaw.path[:_SHOWN_CHARACTERS]}"
        code = _FLAW_CODES.get(flaw.code, "malformed_message")
        raise errors.RequestInvalid(f"the message{place} {flaw.message}", code=code) from error
    return value


def _given(value: dict[str, plain.Json], model: type[BaseModel]) -> dict[str, plain.Json]:
    # What a client leaves empty it has left out.
    return {name: item for name, item in value.items() if item is not None or name not in model.model_fields}


def _unknown(kind: plain.Json) -> str:
    near = difflib.get_close_matches(str(kind)[:_SHOWN_CHARACTERS], _TYPES, 1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(_TYPES)}"
    return f"{str(kind)[:_SHOWN_CHARACTERS]!r} is no type of message{hint}"


def _unfit(error: pydantic.ValidationError, model: type[BaseModel]) -> errors.RequestInvalid:
    found = error.errors(include_url=False, include_input=False)[0]
    path = json_text.json_path(tuple(str(part)[:_SHOWN_CHARACTERS] for part in found["loc"]))
    if found["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(found["loc"][-1])[:_SHOWN_CHARACTERS], list(model.model_fields), 1)
        return _invalid(path, f"is not known{f'; did you mean {near[0]}?' if near else ''}")
    return _invalid(path, wording.told(found))


def _invalid(path: str, message: str) -> errors.RequestInvalid:
    return errors.RequestInvalid(f"{path}: {message}", code="message_invalid")
