"""The message flows of both documents on the WebSocket, message by message, and the page that lists messages."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.api import ws_messages
from tests.integration import listening
from tests.integration.project import Project
from tests.unit.dialects.agent_recipes import recipe_harness
from tests.unit.dialects.agent_recipes.recipe_harness import says

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "websocket.md").read_text(encoding="utf-8")

ORCHESTRATION_DESIGN = {
    "recipe_started": ["type", "recipe_id", "session_id", "step"],
    "response": ["type"],
    "recipe_exited": ["type", "session_id", "reason"],
    "recipe_error": ["type", "session_id", "error"],
}
"""Messages of the service with their fields as in section 5.2."""

AGENT_RECIPES = {
    "recipe_started": ["recipe_id", "recipe_label", "session_id", "current_step", "step_count"],
    "recipe_step_started": ["session_id", "step", "step_count"],
    "recipe_step_transition": ["session_id", "from_step", "to_step"],
    "orchestration_retry": ["session_id", "step", "error"],
    "recipe_exited": ["session_id", "reason", "error"],
    "turn_complete": ["session_id"],
    "session_locked": ["session_id"],
}
"""Messages with their fields as in the table of section 16.2."""

OTHER = '{"outcome": "other", "otherDescription": "there is no repository"}'
Messages = list[dict[str, Any]]


@pytest.fixture
async def service(project: Project) -> AsyncIterator[listening.Listening]:
    """Return the service of the project, on a loopback port."""
    async with listening.on_a_port(project) as service:
        yield service


def _rows(heading: str) -> list[list[list[str]]]:
    table = PAGE.split(heading, 1)[1].split("\n| ---", 1)[1].split("\n\n", 1)[0]
    return [[re.findall(r"`([a-z_]+)`", cell) for cell in line.split("|")[1:-1]] for line in table.splitlines()[1:]]


def _story(told: Messages) -> list[tuple[Any, ...]]:
    """Return each message as its type and its distinguishing fields."""
    facts = ("step", "from_step", "to_step", "reason", "code")
    return [(message["type"], *(message[name] for name in facts if message.get(name) is not None)) for message in told]


def _step(name: str) -> list[tuple[str, str]]:
    return [("recipe_step_started", name), ("response", name)]


async def _play(service: listening.Listening, recipe_id: str, replies: dict[str, str], **fields: Any) -> Messages:
    for key, text in replies.items():
        service.project.say(key, text=text)
    async with service.client() as client:
        await client.say("start_recipe", recipe_id=recipe_id, **fields)
        return await client.until("turn_complete")


async def test_the_loop_of_orchestration_design(service: listening.Listening) -> None:
    """Implement, review, fix, review again and commit, started with the message of orchestration-design."""
    replies = {
        "implement": says("complete"),
        "code-review": says("issues-found"),
        "fix": says("complete"),
        "code-review#2": says("no-issues"),
        "commit": says("committed"),
    }
    asked = {"session_id": None, "ios_session_id": None, "provider": "said", "working_directory": None}
    told = await _play(service, "implement-and-review", replies, **asked)

    assert _story(told) == [
        ("recipe_started", "implement"),
        *_step("implement"),
        ("recipe_step_transition", "implement", "code-review"),
        *_step("code-review"),
        ("recipe_step_transition", "code-review", "fix"),
        *_step("fix"),
        ("recipe_step_transition", "fix", "code-review"),
        *_step("code-review"),
        ("recipe_step_transition", "code-review", "commit"),
        *_step("commit"),
        ("recipe_exited", "changes-committed"),
        ("turn_complete",),
    ]
    assert [one["outcome"] for one in told if one["type"] == "recipe_step_transition"] == [
        "complete",
        "issues-found",
        "complete",
        "no-issues",
    ]
    assert told[2]["prompt"].endswith('{"outcome": "other", "otherDescription": "<brief description>"}')


async def test_retries_are_used_up(service: listening.Listening) -> None:
    """Two replies without an outcome cause a retry, then the error of one document and the exit of the other."""
    told = await _play(service, "review-and-commit", {"*": "{bad}"}, backend="said")

    assert _story(told) == [
        ("recipe_started", "code-review"),
        *_step("code-review"),
        ("orchestration_retry", "code-review"),
        ("response", "code-review"),
        ("recipe_error", "orchestration_error"),
        ("recipe_exited", "orchestration-error"),
        ("turn_complete",),
    ]
    assert told[-3]["error"] == f"Max retries exceeded: {told[-2]['error']}"
    assert (told[-2]["outcome"], told[-2]["other_description"]) == (None, None)


async def test_an_other_exit_has_its_description(project: Project) -> None:
    """Both an exit and a transition by `other` contain the description of `other`."""
    onward = recipe_harness.REVIEW["onOutcome"] | {"other": {"nextStep": "commit", "reason": "nothing to review"}}
    made = recipe_harness.with_step("review", onOutcome=onward) | {"guardrails": {"exitOnOther": False}}
    project.write(".control-room/recipes/agent_recipes/small.json", json.dumps(made))
    async with listening.on_a_port(project) as service:
        told = await _play(service, "small", {"*": OTHER}, backend="said")
    reported = [one for one in told if "other_description" in one]

    assert [one["type"] for one in reported] == ["recipe_step_transition", "recipe_exited"]
    assert {one["outcome"] for one in reported} == {"other"}
    assert {one["other_description"] for one in reported} == {"there is no repository"}


async def test_every_message_has_the_fields_of_both_documents(service: listening.Listening) -> None:
    """The fields of all message types are in the order of each document, and match the page."""
    service.project.say("code-review", text="hm")
    service.project.say("code-review.reminder", text=says("no-issues"))
    service.project.say("commit", hang=True)
    async with service.client() as client:
        await client.say("get_available_recipes")
        await client.say("start_recipe", recipe_id="review-and-commit", provider="said")
        started = (await client.until("recipe_started"))[-1]
        session = {"ios_session_id": started["session_id"]}
        await client.until("recipe_step_started", step="commit")
        await client.say("prompt", text="Hi!", provider="said", **session)
        await client.until("session_locked")
        await client.say("start_recipe", recipe_id="review-and-commit", provider="said")
        waiting = (await _until_waiting(client))["session_id"]
        await client.say("exit_recipe", ios_session_id=waiting)
        await client.until("turn_complete", session_id=waiting)
        await client.say("exit_recipe", **session)
        left = await client.until("turn_complete", session_id=started["session_id"])
        await client.say("subscribe", **session)
        again = await client.until("turn_complete", session_id=started["session_id"])
        await client.ask("start_recipe", recipe_id="reviw-and-commit")
        await client.ask("exit_recipe", session_id=started["session_id"])
        heard = client.heard
    page = {row[0][0]: row[1] for row in _rows("## Service messages")}

    assert {one["type"] for one in heard} == set(page)
    assert all(list(one) == ["type", *page[one["type"]], "seq", "run_id"] for one in heard)
    for document in (ORCHESTRATION_DESIGN, AGENT_RECIPES):
        for one in heard:
            wanted = document.get(one["type"], [])
            assert [name for name in one if name in wanted] == wanted
    assert left[0]["reason"] == "cancelled"
    assert [one["type"] for one in again].count("orchestration_retry") == 1
    assert started["step"] == started["current_step"]
    assert heard[-2]["error"].startswith("Recipe not found: ")
    assert "review-and-commit" in heard[-2]["error"]


async def _until_waiting(client: listening.Client) -> dict[str, Any]:
    while True:
        if (message := await client.hear())["type"] == "run_pending":
            return message


async def test_the_menu_shows_the_first_prompt(service: listening.Listening) -> None:
    """The list contains the data that a menu asks a person to confirm (orchestration-design, 5.4)."""
    async with service.client() as client:
        answer = await client.ask("get_available_recipes")
    listed = {recipe["recipe_id"]: recipe for recipe in answer["recipes"]}
    shown = re.search(r"\{recipe_id, ([a-z_, ]+)\}", PAGE)

    assert shown is not None
    assert list(listed["rebase"]) == ["recipe_id", *shown.group(1).split(", ")]
    assert 0 < len(listed["rebase"]["first_prompt"]) <= 200


def test_the_page_lists_every_client_message() -> None:
    """The page names every accepted type and field."""
    found: dict[str, set[str]] = {}
    kind = ""
    for types, fields, *_ in _rows("## Client messages"):
        kind = types[0] if types else kind
        found.setdefault(kind, set()).update(fields)

    assert found == {name: set(model.model_fields) - {"type"} for name, model in ws_messages.TYPES.items()}
