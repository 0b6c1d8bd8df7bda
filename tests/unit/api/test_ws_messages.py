"""Messages of clients on the WebSocket: each is read, or refused with a code and a place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app import errors
from app.api import ws_messages

MOST = 4096

TYPES = ["start_recipe", "prompt", "exit_recipe", "subscribe", "get_available_recipes", "nonsense"]
FIELDS = [
    "type",
    "recipe_id",
    "session_id",
    "working_directory",
    "args",
    "backend",
    "model",
    "text",
    "after_seq",
    "run_id",
    "idempotency_key",
    *ws_messages.OTHER_NAMES,
    "colour",
]
VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5) | some.sampled_from(TYPES),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def _read(content: str | bytes) -> ws_messages.Received | str:
    try:
        return ws_messages.read(content, MOST)
    except errors.InputRefused as error:
        return error.code if error.message else ""


@given(some.text() | some.binary() | VALUES.map(json.dumps))
def test_anything(content: str | bytes) -> None:
    """Any text is either read or refused."""
    assert _read(content)


@given(some.dictionaries(some.sampled_from(FIELDS), VALUES), some.sampled_from(TYPES))
def test_any_fields(fields: dict[str, Any], type: str) -> None:
    """A message with any fields is read or refused, and a read one has the values that were sent."""
    found = _read(json.dumps(fields | {"type": type}))

    if not isinstance(found, str):
        meant = ws_messages.OTHER_NAMES
        sent = {meant.get(name, name): item for name, item in fields.items() if item is not None and name != "type"}
        assert sent.items() <= found.model_dump().items()


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"type": "subscribe", "session_id": "a", "after_seq": None}, None),
        ({"type": "start_recipe", "recipe_id": "a", "args": None, "session_id": None}, None),
        ({"type": "start_recipe", "recipe_id": None}, "$.recipe_id: is required"),
        (
            {"type": "exit_recipe", "session_id": "a", "colour": None},
            "$.colour: is not known; fields are session_id",
        ),
        (
            {"type": "subscribe", "session_id": "a", "after": 1},
            "$.after: is not known (did you mean after_seq?); fields are session_id, after_seq, run_id",
        ),
        ({"type": "get_available_recipes", "a": 1}, "$.a: is not known; there are no fields beside type"),
        ({"type": "exit_recipe", "ios_session_id": 7}, "$.ios_session_id: must be a text"),
        (
            {"type": "start_recipe", "recipe_id": "a", "idempotency_key": "trigger:trg_a:1"},
            "$.idempotency_key: must not begin with child: or plan: or trigger:, which Control Room uses itself",
        ),
        ({"type": "exit_recipe", "ios_session_id": "a", "session_id": "a"}, None),
        (
            {"type": "exit_recipe", "ios_session_id": "a", "session_id": "b"},
            "$.ios_session_id: differs from session_id; send one of the two",
        ),
    ],
)
def test_fields(sent: dict[str, Any], message: str | None) -> None:
    """A null field is absent, other names are accepted, and an unknown field is answered with the known ones."""
    refused = None
    try:
        ws_messages.read(json.dumps(sent), MOST)
    except errors.InputRefused as error:
        refused = error.message

    assert refused == message
