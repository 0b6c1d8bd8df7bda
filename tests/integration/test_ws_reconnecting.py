"""Reconnecting: the same process or the next one sends a client of the WebSocket the messages that it missed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Close

from tests.integration import listening
from tests.integration.project import Project
from tests.unit.dialects.agent_recipes import recipe_harness
from tests.unit.dialects.agent_recipes.recipe_harness import says

STARTED = {"recipe_id": "review-and-commit", "backend": "said"}


@pytest.fixture
async def service(project: Project) -> AsyncIterator[listening.Listening]:
    """Return the service of the project, on a loopback port."""
    async with listening.on_a_port(project) as service:
        yield service


async def _whole(service: listening.Listening, **fields: Any) -> list[dict[str, Any]]:
    async with service.client() as client:
        await client.say("subscribe", **fields)
        return await client.until("turn_complete")


async def test_a_returning_client_receives_the_same_messages(service: listening.Listening) -> None:
    """A returning client receives the same messages again, from the first or after the last one it received."""
    service.project.say("code-review", text="hm")
    service.project.say("code-review.reminder", text=says("no-issues"))
    service.project.say("commit", text=says("committed"))
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        live = await client.until("turn_complete")
    session = {"session_id": live[0]["session_id"]}

    assert await _whole(service, **session) == live
    for place, message in enumerate(live[:-1]):
        assert await _whole(service, **session, after_seq=message["seq"]) == live[place + 1 :]


async def test_a_client_that_missed_no_message_receives_idle_again(service: listening.Listening) -> None:
    """A client that has missed no message receives once more that the conversation is idle."""
    service.project.say("*", text=recipe_harness.OTHER_SAID)
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        live = await client.until("turn_complete")
    told = await _whole(service, session_id=live[0]["session_id"], after_seq=live[-1]["seq"])

    assert told == live[-1:]


async def test_missed_messages_come_before_new_ones(service: listening.Listening) -> None:
    """A client that subscribes during a recipe receives missed messages, then live ones, without gap or repetition."""
    service.project.say("code-review", text=says("no-issues"))
    service.project.say("commit", text=says("committed"), delay_seconds=0.5)
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        first = await client.until("recipe_step_started")
    async with service.client() as client:
        await client.say("subscribe", session_id=first[0]["session_id"], after_seq=first[-1]["seq"])
        rest = await client.until("turn_complete")

    assert first + rest == await _whole(service, session_id=first[0]["session_id"])


async def test_a_lost_reply_is_found(service: listening.Listening) -> None:
    """A client that disconnects before the answer to its prompt finds the reply when it returns."""
    service.project.say("prompt", text="Hello.", delay_seconds=0.3)
    async with service.client() as client:
        await client.say("prompt", text="Hi!", backend="said", idempotency_key="lost")
        assert await client.silence()
    async with service.client() as client:
        await client.say("prompt", text="Hi!", backend="said", idempotency_key="lost")
        told = await client.until("turn_complete")
    listed = (await service.http.get("/api/runs?recipe_id=prompt")).json()

    assert told[0]["text"] == "Hello."
    assert len(listed) == 1


async def test_every_subscriber_receives_later_runs(service: listening.Listening) -> None:
    """A subscriber receives runs that others start in the conversation later, over HTTP too."""
    service.project.say("prompt", text="Hello.")
    service.project.say("code-review", text=recipe_harness.OTHER_SAID)
    async with service.client() as client, service.client() as other:
        await client.say("prompt", text="Hi!", backend="said")
        session_id = (await client.until("turn_complete"))[0]["session_id"]
        await other.say("subscribe", session_id=session_id)
        await other.until("turn_complete")
        await client.say("prompt", text="And now?", session_id=session_id)
        spoken = [await one.until("turn_complete") for one in (client, other)]
        run_id = await service.start("review-and-commit", args={"backend": "said", "agent_session_id": session_id})
        started = [await one.until("turn_complete") for one in (client, other)]

    assert spoken[0] == spoken[1]
    assert started[0] == started[1]
    assert {message["run_id"] for message in started[0]} == {run_id}


async def test_a_client_receives_the_newest_run_after_its_known_one(service: listening.Listening) -> None:
    """A client that names its last run receives the rest of that run, and then the newest run whole."""
    service.project.say("prompt", text="Hello.")
    async with service.client() as client:
        await client.say("prompt", text="Hi!", backend="said")
        first = await client.until("turn_complete")
        await client.say("prompt", text="And now?", session_id=first[0]["session_id"])
        second = await client.until("turn_complete")
    async with service.client() as client:
        known = {"session_id": first[0]["session_id"], "run_id": first[0]["run_id"], "after_seq": first[0]["seq"]}
        await client.say("subscribe", **known)
        told = await client.until("turn_complete") + await client.until("turn_complete")

    assert told == first[1:] + second


async def test_a_resumed_run_is_reported_to_its_clients(service: listening.Listening) -> None:
    """When a person resumes a failed run, the conversation's clients receive that the recipe has started again."""
    service.project.say("code-review", error={"code": "agent_error", "message": "no credit"})
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        failed = await client.until("turn_complete")
        service.project.say("code-review", text=recipe_harness.OTHER_SAID)
        await service.http.post(f"/api/runs/{failed[0]['run_id']}/resume")
        told = await client.until("turn_complete")
    again = await _whole(service, session_id=failed[0]["session_id"], after_seq=failed[-1]["seq"])

    assert [told[0]["type"], told[-2]["type"]] == ["recipe_started", "recipe_exited"]
    assert (told[-2]["reason"], told[-2]["error"]) == ("user-provided-other", None)
    assert again == told


async def test_a_recipe_outlives_the_service(project: Project) -> None:
    """A service that stops during a recipe asks clients to return; the next one continues, and repeats no message."""
    project.say("code-review", text=says("no-issues"))
    project.say("commit", hang=True)
    async with listening.on_a_port(project) as service, service.client() as client:
        await client.say("start_recipe", **STARTED)
        before = await client.until("recipe_step_started", step="commit")
        await service.until(before[0]["run_id"], step="commit")
        service.release()
        with pytest.raises(ConnectionClosed) as closed:
            await client.hear()
    project.say("commit", text=says("committed"))
    async with listening.on_a_port(project) as service:
        known = {"session_id": before[0]["session_id"], "after_seq": before[-1]["seq"]}
        after = await _whole(service, **known)
        again = await _whole(service, session_id=before[0]["session_id"])

    assert closed.value.rcvd == Close(1012, "the service is stopping; subscribe again after it has restarted")
    assert [message["type"] for message in after] == ["response", "recipe_exited", "turn_complete"]
    assert after[1]["reason"] == "changes-committed"
    assert again == before + after


async def test_a_prompt_outlives_the_service(project: Project) -> None:
    """A prompt that a stop interrupted is sent again by the next service, and answered in the same conversation."""
    project.say("prompt", hang=True)
    async with listening.on_a_port(project) as service:
        async with service.client() as client:
            await client.say("prompt", text="Hi!", backend="said")
            assert await client.silence()
        run_id = (await service.http.get("/api/runs")).json()[0]["run_id"]
        shown = await service.until(run_id, step="prompt")
    project.say("prompt", text="Hello.")
    async with listening.on_a_port(project) as service:
        told = await _whole(service, session_id=shown["task"]["initial_args"]["agent_session_id"])

    assert [message["type"] for message in told] == ["response", "turn_complete"]
    assert told[0]["text"] == "Hello."


async def test_a_conversation_after_a_restart_is_found_again(project: Project) -> None:
    """The conversation to which a recipe has moved is found by its own id, also by the next service."""
    again = json.loads(json.dumps(recipe_harness.AGAIN).replace('"small"', '"again"'))
    recipe = recipe_harness.recipe(id="again", initialStep="commit", steps={"commit": again})
    project.write(".control-room/recipes/agent_recipes/again.json", json.dumps(recipe))
    project.say("commit", text=says("committed"))
    project.say("restart1/commit", text=recipe_harness.OTHER_SAID)
    async with listening.on_a_port(project) as service, service.client() as client:
        await client.say("start_recipe", recipe_id="again", backend="said")
        first = await client.until("turn_complete")
        second = await client.until("turn_complete")
    async with listening.on_a_port(project) as service, service.client() as client:
        await client.say("subscribe", session_id=second[0]["session_id"], after_seq=first[-1]["seq"])
        told = await client.until("turn_complete")

    assert first[0]["session_id"] != second[0]["session_id"]
    assert told == second


async def test_a_repaired_run_is_followed(project: Project) -> None:
    """A client of a run whose last reply a repair has cut off receives the others, and the new one once it is given."""
    project.say("code-review", text=says("no-issues"))
    project.say("commit", text=says("committed"))
    async with listening.on_a_port(project) as service, service.client() as client:
        await client.say("start_recipe", **STARTED)
        begun = (await client.until("turn_complete"))[0]
    journal = project.data / "runs" / begun["run_id"] / "steps.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-1]) + lines[-1].replace("commit", "damage"))
    async with listening.on_a_port(project) as service, service.client() as client:
        repaired = await service.http.post(f"/api/runs/{begun['run_id']}/repair", json={})
        await client.say("subscribe", session_id=begun["session_id"])
        before = await client.until("turn_complete")
        await service.http.post(f"/api/runs/{begun['run_id']}/unpause")
        after = await client.until("turn_complete")

    assert repaired.json()["status"] == "paused"
    assert [message["step"] for message in before if message["type"] == "response"] == ["code-review"]
    assert [message["step"] for message in after if message["type"] == "response"] == ["commit"]
    assert {message["type"] for message in (*before, *after)}.isdisjoint({"error", "recipe_error"})


async def test_a_fork_is_reported_in_its_own_conversation(service: listening.Listening) -> None:
    """The messages of a fork name the conversation that it uses, and clients of its source's do not receive them."""
    service.project.say("code-review", text=says("no-issues"))
    service.project.say("commit", text=says("committed"))
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        source = (await client.until("turn_complete"))[0]
        answer = await service.http.post(f"/api/runs/{source['run_id']}/fork", json={"from": "commit"})
        fork = await service.until(answer.json()["run_id"], "done")
        quiet = await client.silence()
    own = fork["machine"]["sessionId"]
    told = await _whole(service, session_id=own)
    async with service.client() as client:
        await client.say("prompt", text="And?", session_id=told[-1]["session_id"])
        after = await client.until("turn_complete")

    assert quiet
    assert {message["session_id"] for message in told} == {own}
    assert own != source["session_id"]
    assert {message["run_id"] for message in told} == {fork["run_id"]}
    assert {message["session_id"] for message in after} == {own}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"session_id": "nobody"}, "unknown_agent_session"),
        ({"session_id": "nobody", "run_id": "20260210T143000Z-k3x9af"}, "run_not_found"),
        ({"session_id": "nobody", "run_id": "../../etc"}, "run_not_found"),
        ({"session_id": "../.."}, "unknown_agent_session"),
        ({"session_id": "a", "after_seq": -1}, "message_invalid"),
        ({"session_id": "a", "after_seq": 2**60}, "message_invalid"),
        ({"session_id": "a", "after_seq": "1"}, "message_invalid"),
        ({}, "message_invalid"),
    ],
)
async def test_an_unknown_conversation_or_run_is_an_error(service: listening.Listening, fields: Any, code: str) -> None:
    """An unknown conversation or run is an error, and so is an invalid number."""
    async with service.client() as client:
        answer = await client.ask("subscribe", **fields)

    assert (answer["type"], answer["code"]) == ("error", code)


async def test_a_run_without_a_conversation(service: listening.Listening) -> None:
    """A run of a language without conversations cannot be followed here."""
    run_id = (await service.run("quick", description="arrival"))["run_id"]
    async with service.client() as client:
        answer = await client.ask("subscribe", session_id="any", run_id=run_id)

    assert (answer["type"], answer["code"]) == ("error", "unknown_agent_session")


async def test_many_clients(service: listening.Listening) -> None:
    """A hundred clients of one conversation all receive the same messages."""
    service.project.say("code-review", text=says("no-issues"), delay_seconds=0.3)
    service.project.say("commit", text=says("committed"))
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        started = (await client.until("recipe_started"))[0]
        told = await asyncio.gather(*(_whole(service, session_id=started["session_id"]) for _ in range(100)))
        live = [started, *await client.until("turn_complete")]

    assert all(one == live for one in told)
