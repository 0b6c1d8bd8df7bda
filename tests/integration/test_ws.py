"""Conversations with agents over the WebSocket: every message with its fields, in the order of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.storage import layout
from tests.integration import listening
from tests.integration.project import Project
from tests.unit.dialects.agent_recipes import recipe_harness
from tests.unit.dialects.agent_recipes.recipe_harness import says

OWN = ".control-room/recipes/agent_recipes"
STARTED = {"recipe_id": "review-and-commit", "backend": "said"}


@pytest.fixture
async def service(project: Project) -> AsyncIterator[listening.Listening]:
    """Return the service of the project, on a loopback port."""
    async with listening.on_a_port(project) as service:
        yield service


def _write(project: Project, document: dict[str, Any]) -> None:
    project.write(f"{OWN}/{document['id']}.json", json.dumps(document))


def _kinds(told: list[dict[str, Any]]) -> list[str]:
    return [message["type"] for message in told]


def _without(told: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in message.items() if name not in names} for message in told]


async def test_a_recipe_is_reported_from_start_to_end(service: listening.Listening) -> None:
    """Every step, reply, reminder and transition of a recipe is a message with its fields and a rising number."""
    service.project.say("code-review", text="hm")
    service.project.say("code-review.reminder", text=says("no-issues"))
    service.project.say("commit", text=says("committed"))
    async with service.client() as client:
        await client.say("start_recipe", **STARTED, working_directory=None, session_id=None, args={})
        told = await client.until("turn_complete")
    shown = await service.show(told[0]["run_id"])
    session = {"session_id": shown["machine"]["sessionId"]}
    reported = {"other_description": None, "outcome": "no-issues"}
    prompts = [message.pop("prompt") for message in told if message["type"] == "response"]

    assert _without(told, "seq", "run_id") == [
        {"type": "recipe_started", **session, "recipe_id": "review-and-commit", "recipe_label": "Review & Commit"}
        | {"current_step": "code-review", "step": "code-review", "step_count": 1},
        {"type": "recipe_step_started", **session, "step": "code-review", "step_count": 1},
        {"type": "response", **session, "step": "code-review", "text": "hm"},
        {"type": "orchestration_retry", **session, "step": "code-review"}
        | {"error": "No JSON block found in response"},
        {"type": "response", **session, "step": "code-review", "text": says("no-issues")},
        {"type": "recipe_step_transition", **session, "from_step": "code-review", "to_step": "commit", **reported},
        {"type": "recipe_step_started", **session, "step": "commit", "step_count": 2},
        {"type": "response", **session, "step": "commit", "text": says("committed")},
        {"type": "recipe_exited", **session, "reason": "changes-committed", "error": None}
        | reported
        | {"outcome": "committed"},
        {"type": "turn_complete", **session},
    ]
    assert [prompt.splitlines()[-1] for prompt in prompts[1:]] == [
        "Respond with ONLY the JSON block, nothing else.",
        '{"outcome": "other", "otherDescription": "<brief description>"}',
    ]
    assert {message["run_id"] for message in told} == {shown["run_id"]}
    numbers = [message["seq"] for message in told]
    assert numbers == sorted(set(numbers))


async def test_the_numbers_are_those_of_the_events(service: listening.Listening) -> None:
    """A message has the number of its event, so that both streams of a run can be compared."""
    service.project.say("*", text=recipe_harness.OTHER_SAID)
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        told = await client.until("turn_complete")
    written = (service.project.data / "runs" / told[0]["run_id"] / "events.jsonl").read_text().splitlines()
    events = {event["seq"]: event["type"] for event in map(json.loads, written)}

    assert {message["type"]: events[message["seq"]] for message in told} == {
        "recipe_started": "recipe.note",
        "recipe_step_started": "recipe.note",
        "response": "step.finished",
        "recipe_exited": "recipe.note",
        "turn_complete": "run.ended",
    }


async def test_a_recipe_that_reports_nothing(service: listening.Listening) -> None:
    """If the agent reports no outcome even when asked again, the recipe exits with the reason and the fault."""
    service.project.say("*", text="{bad}")
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        told = await client.until("turn_complete")

    assert told[-2]["type"] == "recipe_exited"
    assert told[-2]["reason"] == "orchestration-error"
    assert "even when asked again" in told[-2]["error"]


async def test_an_agent_that_fails(service: listening.Listening) -> None:
    """An error of an agent is sent with its code before the recipe exits."""
    service.project.say("code-review", error={"code": "agent_error", "message": "no credit"})
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        told = await client.until("turn_complete")
    failed, exited = told[-3], told[-2]

    assert _kinds(told)[-3:] == ["recipe_error", "recipe_exited", "turn_complete"]
    assert (failed["code"], failed["error"]) == ("agent_error", "no credit")
    assert (exited["reason"], exited["error"]) == ("backend-error", "no credit")
    assert failed["session_id"] == told[0]["session_id"]


async def test_a_guardrail_ends_the_recipe(service: listening.Listening) -> None:
    """A limit in the arguments ends the recipe, and the exit names the limit."""
    service.project.say("code-review", text=says("no-issues"))
    async with service.client() as client:
        await client.say("start_recipe", recipe_id="review-and-commit", args={"backend": "said", "max_steps": 1})
        told = await client.until("turn_complete")

    assert told[-2]["reason"] == "max-total-steps"


async def test_a_restart_is_reported_in_both_conversations(service: listening.Listening) -> None:
    """The old conversation is left and idle, the recipe starts in the new one, and the run stays the same."""
    again = json.loads(json.dumps(recipe_harness.AGAIN).replace('"small"', '"again"'))
    _write(service.project, recipe_harness.recipe(id="again", initialStep="commit", steps={"commit": again}))
    service.project.say("commit", text=says("committed"))
    service.project.say("restart1/commit", text=recipe_harness.OTHER_SAID)
    async with service.client() as client:
        await client.say("start_recipe", recipe_id="again", backend="said")
        first = await client.until("turn_complete")
        second = await client.until("turn_complete")
        asked = await client.ask("exit_recipe", session_id=second[0]["session_id"])
    old, new = first[0]["session_id"], second[0]["session_id"]

    assert (first[-2]["type"], first[-2]["reason"]) == ("recipe_exited", "restart-new-session")
    assert {message["session_id"] for message in first} == {old}
    assert _kinds(second)[:2] == ["recipe_started", "recipe_step_started"]
    assert {message["session_id"] for message in second} == {new}
    assert {message["run_id"] for message in first + second} == {first[0]["run_id"]}
    assert old != new
    assert asked["code"] == "session_idle"


async def test_the_recipes_are_listed(service: listening.Listening) -> None:
    """The list contains the fields of a menu, the project's included; broken ones and other languages are absent."""
    _write(service.project, recipe_harness.recipe(id="ours"))
    _write(service.project, recipe_harness.recipe(id="broken", initialStep="nowhere"))
    async with service.client() as client:
        answer = await client.ask("get_available_recipes")
    listed = {recipe["recipe_id"]: recipe for recipe in answer["recipes"]}

    assert set(answer) == {"type", "recipes", "seq", "run_id"}
    assert {"review-and-commit", "rebase", "ours"} <= set(listed)
    assert not {"broken", "draft", "quick"} & set(listed)
    assert listed["ours"]["label"] == "Small"
    assert listed["ours"]["steps"] == ["review", "fix", "commit"]
    assert "backend" in listed["ours"]["args_schema"]["properties"]


# -- refused starts


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"recipe_id": "review-and-comit"}, "unknown_recipe"),
        ({"recipe_id": "quick"}, "wrong_dialect"),
        ({"recipe_id": "retrospective"}, "args_invalid"),
        ({"recipe_id": "rebase", "args": {"colour": "red"}}, "args_invalid"),
        ({"recipe_id": "rebase", "backend": "said", "working_directory": "/etc"}, "working_dir_refused"),
        ({"recipe_id": "rebase", "backend": "sayd"}, "unknown_backend"),
        ({"recipe_id": "rebase", "backend": "said", "args": {"backend": "other"}}, "message_invalid"),
        ({"recipe_id": "rebase", "session_id": "../../etc"}, "args_invalid"),
    ],
)
async def test_a_recipe_that_cannot_be_started(service: listening.Listening, fields: Any, code: str) -> None:
    """The refusal names the requested conversation and a code, and no recipe starts."""
    async with service.client() as client:
        answer = await client.ask("start_recipe", **fields)
        quiet = await client.silence()

    assert answer["type"] == "recipe_error"
    assert (answer["session_id"], answer["code"]) == (fields.get("session_id"), code)
    assert answer["error"]
    assert quiet


@pytest.mark.parametrize(
    ("args", "code"), [({"agent_session_id": 5}, "args_invalid"), ({"agent_session_id": "another"}, "message_invalid")]
)
async def test_a_conversation_in_the_arguments(service: listening.Listening, args: dict[str, Any], code: str) -> None:
    """A conversation in the arguments that is not a text, or not that of the message, is refused."""
    named = {} if code == "args_invalid" else {"session_id": "one"}
    async with service.client() as client:
        answer = await client.ask(
            "start_recipe", recipe_id="review-and-commit", args=args | {"backend": "said"}, **named
        )

    assert (answer["type"], answer["code"]) == ("recipe_error", code)


# -- plain prompts


async def test_a_prompt_is_answered(service: listening.Listening) -> None:
    """A prompt without a conversation is answered in a new one, and the next prompt continues that one."""
    service.project.say("prompt", text="Hello.")
    async with service.client() as client:
        await client.say("prompt", text="Hi!", backend="said", session_id=None, working_directory=None)
        first = await client.until("turn_complete")
        session_id = first[0]["session_id"]
        await client.say("prompt", text="And again.", session_id=session_id)
        second = await client.until("turn_complete")
    runs = [(await service.http.get(f"/api/runs/{told[0]['run_id']}")).json() for told in (first, second)]

    assert _without(first, "seq", "run_id") == [
        {"type": "response", "session_id": session_id, "step": None, "text": "Hello.", "prompt": "Hi!"},
        {"type": "turn_complete", "session_id": session_id},
    ]
    assert _without(second, "seq", "run_id", "prompt") == _without(first, "seq", "run_id", "prompt")
    assert [run["description"] for run in (row["task"] for row in runs)] == ["Hi!", "And again."]
    assert [run["task"]["initial_args"]["backend"] for run in runs] == ["said", "said"]
    assert [run["task"]["initial_args"]["session_created"] for run in runs] == [False, True]


async def test_a_prompt_that_fails(service: listening.Listening) -> None:
    """An error of an agent is an error message about its run, and the conversation is idle again."""
    service.project.say("prompt", error={"code": "agent_error", "message": "no credit"})
    async with service.client() as client:
        await client.say("prompt", text="Hi!", backend="said")
        told = await client.until("turn_complete")

    assert _without(told, "seq", "run_id", "session_id") == [
        {"type": "error", "code": "agent_error", "message": "no credit"},
        {"type": "turn_complete"},
    ]


async def test_a_prompt_has_an_hour(service: listening.Listening) -> None:
    """The agent call of a prompt is limited to an hour, and may use the agent's own tools."""
    service.project.say("prompt", text="Hello.")
    async with service.client() as client:
        await client.say("prompt", text="Hi!", backend="said", model="haiku", system_prompt="Be kind.")
        run_id = (await client.until("turn_complete"))[0]["run_id"]
    line = (await service.http.get(f"/api/runs/{run_id}/steps")).json()[0]
    asked = line["operation"]["body"]

    assert (asked["timeout_seconds"], asked["tools"], asked["model"]) == (3600, True, "haiku")
    assert (asked["prompt"], asked["system"]) == (["Hi!"], "Be kind.")


async def test_a_long_reply_is_sent_whole(service: listening.Listening) -> None:
    """A reply too large for a journal line is sent whole, live and when it is repeated."""
    text = " ".join(f"é{number}" for number in range(30_000))
    service.project.say("prompt", text=text)
    async with service.client() as client:
        await client.say("prompt", text="Tell me everything.", backend="said")
        live = await client.until("turn_complete")
        await client.say("subscribe", session_id=live[0]["session_id"])
        again = await client.until("turn_complete")

    assert live[0]["text"] == text
    assert again == live


async def test_a_prompt_is_not_paid_twice(service: listening.Listening) -> None:
    """A prompt that is repeated with its key finds the first one's run and reply."""
    service.project.say("prompt", text="Hello.")
    asked = {"text": "Hi!", "backend": "said", "idempotency_key": "key-1"}
    async with service.client() as client:
        await client.say("prompt", **asked)
        first = await client.until("turn_complete")
    async with service.client() as client:
        await client.say("prompt", **asked)
        second = await client.until("turn_complete")
        other = await client.ask("prompt", **asked | {"text": "Something else."})

    assert second == first
    assert (other["type"], other["code"]) == ("error", "idempotency_conflict")


async def test_a_prompt_is_not_paid_twice_after_others(service: listening.Listening) -> None:
    """A repeated prompt finds its run although another run has used the conversation since, or uses it now."""
    service.project.say("prompt", text="Hello.")
    asked = {"text": "Hi!", "backend": "said", "idempotency_key": "key-1"}
    async with service.client() as client:
        await client.say("prompt", **asked)
        first = await client.until("turn_complete")
        session = {"session_id": first[0]["session_id"]}
        await client.say("prompt", text="And again.", **session)
        await client.until("turn_complete")
    async with service.client() as client:
        await client.say("prompt", **asked)
        after = await client.until("turn_complete")
    service.project.say("prompt", hang=True)
    async with service.client() as client:
        await client.say("prompt", text="Are you there?", **session)
        assert await client.silence()
        await client.say("prompt", **asked)
        meanwhile = await client.until("turn_complete")
        other = await client.ask("prompt", **asked, **session)

    assert after == first
    assert meanwhile == first
    assert other["type"] == "session_locked"


async def test_a_conversation_outlives_its_runs(service: listening.Listening) -> None:
    """A conversation whose newest run was deleted is continued, with its backend and in its folder."""
    service.project.say("prompt", text="Hello.")
    async with service.client() as client:
        await client.say("prompt", text="Hi!", backend="said")
        first = (await client.until("turn_complete"))[0]
        session_id = first["session_id"]
        record = {"agent_session_id": session_id, "backend": "said", "working_dir": str(service.project.root)}
        folder = f".control-room/{layout.agent_session_folder(session_id)}"
        service.project.write(f"{folder}/session.json", json.dumps(record))
        deleted = await service.http.delete(f"/api/runs/{first['run_id']}")
        refusals = [await client.ask(order, session_id=session_id) for order in ("subscribe", "exit_recipe")]
        await client.say("prompt", text="And again.", session_id=session_id)
        second = await client.until("turn_complete")

    assert deleted.status_code == 204, deleted.text
    assert [refusal["code"] for refusal in refusals] == ["unknown_agent_session"] * 2
    assert _without(second[:1], "seq", "run_id", "prompt") == _without([first], "seq", "run_id", "prompt")


# -- one at a time


async def test_a_conversation_has_one_speaker(service: listening.Listening) -> None:
    """While a recipe or a prompt uses a conversation, other requests are refused as locked, with the run's id."""
    service.project.say("code-review", hang=True)
    service.project.say("prompt", hang=True)
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        started = (await client.until("recipe_step_started"))[-1]
        session = {"session_id": started["session_id"]}
        refusals = [
            await client.ask("prompt", text="Hi!", backend="said", **session),
            await client.ask("start_recipe", **STARTED, **session),
        ]
        await client.say("exit_recipe", **session)
        await client.until("turn_complete")
        await client.say("prompt", text="Hi!", backend="said", **session)
        assert await client.silence()
        refusals.append(await client.ask("prompt", text="Are you there?", backend="said", **session))
        await client.say("exit_recipe", **session)
        left = await client.until("turn_complete")

    locked = {"type": "session_locked", **session, "seq": None}
    assert _without(refusals, "run_id") == [locked] * 3
    assert [refusal["run_id"] for refusal in refusals] == [started["run_id"]] * 2 + [left[0]["run_id"]]
    assert (left[0]["type"], left[0]["code"]) == ("error", "cancelled")


async def test_two_prompts_at_once(service: listening.Listening) -> None:
    """Of two concurrent prompts in one conversation, one is accepted and the other is refused as locked."""
    service.project.say("prompt", text="Hello.")
    async with service.client() as client, service.client() as other:
        await client.say("prompt", text="Hi!", backend="said")
        session_id = (await client.until("turn_complete"))[0]["session_id"]
        service.project.say("prompt", hang=True)
        answers = [asyncio.create_task(_ask(one, session_id)) for one in (client, other)]
        done, waiting = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        refusal = done.pop().result()
        for task in waiting:
            task.cancel()

    assert (refusal["type"], refusal["session_id"]) == ("session_locked", session_id)


async def _ask(client: listening.Client, session_id: str) -> dict[str, Any]:
    return await client.ask("prompt", text="You there?", backend="said", session_id=session_id)


# -- leaving


async def test_a_recipe_is_left_while_its_agent_works(service: listening.Listening) -> None:
    """`exit_recipe` ends the run as cancelled, reports this, and releases the conversation."""
    service.project.say("code-review", hang=True)
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        started = (await client.until("recipe_step_started"))[-1]
        await service.until(started["run_id"], step="code-review")
        await client.say("exit_recipe", session_id=started["session_id"])
        told = await client.until("turn_complete")
        again = await client.ask("exit_recipe", session_id=started["session_id"])
    shown = await service.show(started["run_id"])

    assert _kinds(told) == ["recipe_exited", "turn_complete"]
    assert (told[0]["reason"], told[0]["error"]) == ("cancelled", None)
    assert shown["status"] == "cancelled"
    assert (again["type"], again["code"]) == ("error", "session_idle")


async def test_a_recipe_that_waits_for_its_workspace(service: listening.Listening) -> None:
    """A recipe that must wait is reported with its run, can be left before it begins, and begins in its turn."""
    service.project.say("code-review", hang=True)
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        holder = (await client.until("recipe_step_started"))[-1]
        waiting = await client.ask("start_recipe", **STARTED)
        await client.say("exit_recipe", session_id=waiting["session_id"])
        left = await client.until("turn_complete", run_id=waiting["run_id"])
        later = await client.ask("start_recipe", **STARTED)
        await client.say("exit_recipe", session_id=holder["session_id"])
        begun = await client.until("recipe_started")

    assert (waiting["type"], waiting["recipe_id"]) == ("run_pending", "review-and-commit")
    assert _kinds(left) == ["recipe_exited", "turn_complete"]
    assert {message["session_id"] for message in left} == {waiting["session_id"]}
    assert begun[-1]["session_id"] == later["session_id"]


async def test_a_recipe_that_was_left_before_it_began_is_sent_on(service: listening.Listening) -> None:
    """A recipe that was left before it began is reported as started when a person resumes its run."""
    service.project.say("code-review", hang=True)
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        holder = (await client.until("recipe_step_started"))[-1]
        waiting = await client.ask("start_recipe", **STARTED)
        await client.say("exit_recipe", session_id=waiting["session_id"])
        await client.until("turn_complete", run_id=waiting["run_id"])
        await client.say("exit_recipe", session_id=holder["session_id"])
        await client.until("turn_complete", run_id=holder["run_id"])
        service.project.say("code-review", text=recipe_harness.OTHER_SAID)
        await service.http.post(f"/api/runs/{waiting['run_id']}/resume")
        told = await client.until("turn_complete", run_id=waiting["run_id"])

    assert _kinds(told) == ["recipe_started", "response", "recipe_exited", "turn_complete"]
    assert (told[0]["session_id"], told[0]["current_step"]) == (waiting["session_id"], "code-review")
