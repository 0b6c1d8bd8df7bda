"""Notifications: webhooks, e-mail and commands receive the events of runs."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sized
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import clock, errors
from app.domain import events, notifications, plain
from app.engine import event_feed
from app.services.notifications import derivation, dispatcher, plan_questions, repository, webhook_sender
from app.services.triggers import pointers
from app.storage import folder_store
from tests.integration import endpoints, powercuts, scheduled, served
from tests.integration.project import Project

ALLOWED: dict[str, Any] = {"notify_allowed": ("127.0.0.0/8",)}
ADDRESS = "/api/notifications/endpoints"
ASKING = """schema: "1.7"
name: ask
version: 1.0.0
description: Ask
stages:
  - name: plan
    approval: {required: true, prompt: "Ship it?"}
    steps: [{id: look, type: bash, command: "true"}]
"""


async def _add(service: served.Served, **body: Any) -> dict[str, Any]:
    answer = await service.http.post(ADDRESS, json=body)
    assert answer.status_code == 201, answer.text
    added: dict[str, Any] = answer.json()
    return added


async def _listed(service: served.Served, endpoint_id: str) -> dict[str, Any]:
    return next(one for one in (await service.http.get(ADDRESS)).json() if one["endpoint_id"] == endpoint_id)


@pytest.mark.parametrize("configured", [True, False])
async def test_mail_without_a_server_is_warned_of(project: Project, configured: bool) -> None:
    """The answer that adds or changes an endpoint of e-mail names the settings that the service lacks for it."""
    given = {"smtp_url": "smtp://127.0.0.1:1", "mail_from": "room@example.org"} if configured else {}
    async with served.in_process(project, **given) as service:
        address = "/api/notifications/endpoints"
        added = (await service.http.post(address, json={"to": ["editor@example.org"]})).json()
        edited = (await service.http.patch(f"{address}/{added['endpoint_id']}", json={"kinds": ["failed"]})).json()
        program = (await service.http.post(address, json={"argv": ["true"]})).json()

    lacks = None if configured else "CONTROL_ROOM_SMTP_URL and CONTROL_ROOM_MAIL_FROM are not set"
    assert [one.get("warning") for one in (added, edited, program)] == [lacks, lacks, None]


async def test_a_program_that_does_not_exist_is_warned_of(project: Project) -> None:
    """The answer that adds an endpoint names a program that cannot be executed; it is looked for as at a delivery."""
    project.write("tell", "#!/bin/sh\n").chmod(0o755)
    project.write("text", "")
    async with served.in_process(project) as service:
        added = [await _add(service, argv=[name]) for name in ("/no/such/program", "no-such", "./text", "./tell", "sh")]

    lacks = [
        f"the program '{name}' is not found, or not executable" for name in ("/no/such/program", "no-such", "./text")
    ]
    assert [one.get("warning") for one in added] == [*lacks, None, None]


async def _delivered(service: served.Served) -> None:
    """Wait until every message is recorded as delivered, since a restart before that repeats it."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while any(one["waiting"] for one in (await service.http.get(ADDRESS)).json()):
            await served.moment()


async def test_endings_are_sent_signed_and_filtered(tmp_path: Path) -> None:
    """Each endpoint receives the events it asked for, once, with a signature of Standard Webhooks."""
    project = Project(tmp_path)
    async with endpoints.receiver() as all_, endpoints.receiver() as failed, endpoints.receiver() as labelled:
        async with served.in_process(project, **ALLOWED) as service:
            added = await _add(service, url=f"{all_.url}/x?y=z")
            await _add(service, url=failed.url, kinds=["failed"])
            await _add(service, url=labelled.url, label="book:one", recipe_id="quick")
            done = await service.run("quick", labels={"book": "one"})
            broken = await service.run("draft", args={"scene_path": "none.md"}, labels={"book": "one"})
            first, second = await all_.until(2)
            await failed.until(1)
            await labelled.until(1)
            await _delivered(service)
        async with served.in_process(project, **ALLOWED) as service:
            third = await service.run("quick", labels={"book": "one"})
            await all_.until(3)
            await labelled.until(2)
            await _delivered(service)

    key = pointers.key_of(added["signing_secret"])
    assert key is not None
    sent = first.headers
    signature = pointers.signature(key, sent["webhook-id"], sent["webhook-timestamp"], first.body)
    assert sent["webhook-signature"] == signature
    assert (first.content["type"], first.content["data"]["run_id"]) == ("run.done", done["run_id"])
    assert (second.content["type"], second.content["data"]["run_id"]) == ("run.failed", broken["run_id"])
    assert second.content["data"]["error"]["code"] == "file_not_found"
    assert [one.content["data"]["run_id"] for one in failed.posts] == [broken["run_id"]]
    assert [one.content["data"]["run_id"] for one in labelled.posts] == [done["run_id"], third["run_id"]]
    assert len({one.headers["webhook-id"] for one in all_.posts}) == len(all_.posts) == 3


async def test_a_gate_is_notified_once_even_after_restarts(tmp_path: Path) -> None:
    """A message contains the prompt and options of a question; a restart asks again, but sends no second message."""
    project = Project(tmp_path)
    project.write(".control-room/recipes/amplifier/ask.yaml", ASKING)
    async with endpoints.receiver() as receiver:
        async with served.in_process(project, **ALLOWED) as service:
            await _add(service, url=receiver.url)
            run_id = await service.start("ask")
            (asked,) = await receiver.until(1)
            await _delivered(service)
        async with served.in_process(project, **ALLOWED) as service:
            await service.until(run_id, "waiting")
            (gate,) = (await service.http.get("/api/gates")).json()
            await service.http.post(f"/api/gates/{gate['gate_id']}", json={"decision": "approve"})
            await service.until(run_id, "done")
            posts = await receiver.until(2)

    data = asked.content["data"]
    assert (asked.content["type"], data["gate_id"], data["run_id"]) == ("run.waits", gate["gate_id"], run_id)
    assert "Ship it?" in data["prompt"]
    assert [one.content["type"] for one in posts] == ["run.waits", "run.done"]


async def test_questions_of_plans_are_notified(tmp_path: Path) -> None:
    """The message about a task's question contains the place of its answer and one id, also after a restart."""
    project, allowed = Project(tmp_path), ALLOWED
    async with endpoints.receiver() as receiver, endpoints.receiver() as failed:
        async with served.in_process(project, **allowed) as service:
            await _add(service, url=receiver.url)
            await _add(service, url=failed.url, kinds=["failed"])
            asked = {"description": "quick", "recipe_id": "quick", "scoping_question": "Which colour?"}
            made = await service.http.post("/api/sessions", json={"tasks": [asked]})
            assert made.status_code == 201, made.text
            session_id = made.json()["session_id"]
            (first,) = await receiver.until(1)
        async with served.in_process(project, **allowed) as service:
            # The next message comes after those that the start would repeat.
            run = await service.run("quick")
            await _messages(receiver, 2)
            path = f"/api/sessions/{session_id}/tasks"
            answered = await service.http.post(f"{path}/1/answer", json={"answer": "Blue."})
            other = {"description": "quick", "recipe_id": "quick", "scoping_question": "Which size?"}
            added = await service.http.post(path, json=other)
            assert (answered.status_code, added.status_code) == (200, 201), (answered.text, added.text)
            posts = await _messages(receiver, 3)

    told, (second, third) = first.content["data"], list(posts.values())[1:]
    assert (told["kind"], told["session_id"], told["task_id"]) == ("waits", session_id, 1)
    assert (told["prompt"], first.content["type"]) == ("Which colour?", "run.waits")
    assert second.content["data"]["run_id"] == run["run_id"]
    assert third.content["data"]["prompt"] == "Which size?"
    assert failed.posts == []


async def test_a_question_with_a_secret_is_notified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message about a question of a new plan masks secrets, and the masked plan after an order gives no other."""
    monkeypatch.setenv("CHAT_TOKEN", "tok-5f2e9a77")
    asked = {"description": "Use tok-5f2e9a77", "recipe_id": "quick", "scoping_question": "tok-5f2e9a77, or which?"}
    async with endpoints.receiver() as receiver, served.in_process(Project(tmp_path), **ALLOWED) as service:
        await _add(service, url=receiver.url)
        made = await service.http.post("/api/sessions", json={"tasks": [asked]})
        await receiver.until(1)
        approved = await service.http.post(f"/api/sessions/{made.json()['session_id']}/approve")
        run = await service.run("quick")
        posts = list((await _messages(receiver, 2)).values())

    assert approved.json()["tasks"][0]["scoping_question"] == "***, or which?"
    assert [one.content["data"]["run_id"] for one in posts] == [made.json()["session_id"], run["run_id"]]
    assert (posts[0].content["data"]["prompt"], posts[0].content["data"]["task"]) == ("***, or which?", "Use ***")


async def _messages(receiver: endpoints.Receiver, count: int) -> dict[str, endpoints.Post]:
    """Wait until this number of different messages has arrived, and return them by their ids, in order."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while len(found := {post.headers["webhook-id"]: post for post in receiver.posts}) < count:
            await served.moment()
    return found


async def test_refusals_are_retried_in_the_order_of_the_run_and_given_up(tmp_path: Path) -> None:
    """Pauses between tries grow; after the last one the message is a dead letter, which a replay delivers."""
    async with endpoints.receiver() as receiver:
        receiver.statuses = [500]
        async with scheduled.in_process(Project(tmp_path), **ALLOWED) as service:
            added = await _add(service, url=receiver.url)
            address = f"{ADDRESS}/{added['endpoint_id']}"
            run_id = await service.start("quick")
            await receiver.until(1)
            for number, pause in enumerate(dispatcher.RETRY_SECONDS, 2):
                await _after(service.time, pause, receiver.posts, number)
            dead = await _until_dead(service, address)
            shown = await _listed(service, added["endpoint_id"])
            receiver.statuses = [204]
            wrong = await service.http.post(f"{address}/replay", json={"message_id": "msg_0"})
            replayed = (await service.http.post(f"{address}/replay")).json()
            await receiver.until(len(dispatcher.RETRY_SECONDS) + 2)
            left = await _until_dead(service, address, count=0)

    assert (dead[0]["message"]["run_id"], dead[0]["attempts"]) == (run_id, 8)
    assert dead[0]["error"] == "the answer was 500"
    assert (shown["waiting"], shown["dead"]) == (0, 1)
    assert (wrong.status_code, wrong.json()["code"]) == (404, "message_not_found")
    assert replayed == {"replayed": 1}
    assert left == []
    assert {one.headers["webhook-id"] for one in receiver.posts} == {dead[0]["message"]["message_id"]}


async def test_a_person_ends_the_tries_of_a_message(tmp_path: Path) -> None:
    """A message whose tries a person ends becomes a dead letter at once, and a replay delivers it."""
    async with endpoints.receiver() as receiver:
        receiver.statuses = [500]
        async with scheduled.in_process(Project(tmp_path), **ALLOWED) as service:
            added = await _add(service, url=receiver.url)
            address = f"{ADDRESS}/{added['endpoint_id']}"
            run_id = await service.start("quick")
            await receiver.until(1)
            async with asyncio.timeout(served.WAIT_SECONDS):
                while not (failing := (await service.http.get(f"{address}/failing")).json()):
                    await served.moment()
            message_id = failing[0]["message_id"]
            wrong = await service.http.post(f"{address}/give-up", json={"message_id": "msg_0"})
            ended = await service.http.post(f"{address}/give-up", json={"message_id": message_id})
            again = await service.http.post(f"{address}/give-up", json={})
            (letter,) = await _until_dead(service, address)
            left = (await service.http.get(f"{address}/failing")).json()
            receiver.statuses = [204]
            await service.http.post(f"{address}/replay", json={"message_id": message_id})
            await receiver.until(2)
            audited = (await service.http.get("/api/audit", params={"action": "endpoint.given_up"})).json()

    told = {name: failing[0][name] for name in ("run_id", "kind", "attempts", "error")}
    assert told == {"run_id": run_id, "kind": "done", "attempts": 1, "error": "the answer was 500"}
    assert failing[0]["tried_at"] < failing[0]["next_try_at"]
    assert (wrong.status_code, wrong.json()["code"]) == (404, "message_not_found")
    assert (ended.json(), again.json(), left) == ({"given_up": 1}, {"given_up": 0}, [])
    assert (letter["message"]["message_id"], letter["attempts"]) == (message_id, 1)
    assert len(audited) == 2


async def test_endings_of_other_processes_are_notified(tmp_path: Path) -> None:
    """A dispatcher finds the endings of other processes in the store, and repeats none when it reads it again."""
    heard: list[str] = []

    class Listener:
        async def send(self, endpoint: notifications.Endpoint, message: notifications.Message) -> str:
            heard.append(message.run_id)
            return ""

    async with scheduled.in_process(Project(tmp_path)) as service:
        assert service.app is not None
        store, time = service.app.state.services.runs._store, service.time
        kept = repository.EndpointRepository(store.documents("other"), lambda name: store.documents(f"other/{name}"))
        at = clock.stamp(scheduled.BEGIN)
        await kept.put(
            notifications.Endpoint(
                endpoint_id="ep_1", name="x", channel="command", argv=("x",), created_at=at, since=at
            )
        )
        other = dispatcher.Dispatcher(
            repository=kept,
            store=store,
            feed=event_feed.EventFeed(time.monotonic),
            senders={"command": Listener()},
            clock=time,
            other_messages=plan_questions.PlanQuestions(store.plans, plain.Masker()),
            hears_all=False,
        )
        other.start()
        found = []
        for count in (1, 2, 3):
            found.append(await service.start("quick"))
            await service.until(found[-1], "done")
            await _after(time, 45, heard, count)
        await other.stop()

    assert heard == found


async def test_undelivered_messages_are_sent_after_a_restart(tmp_path: Path) -> None:
    """Runs that ended before a restart are read again; delivered messages are not repeated, and the order is kept."""
    project = Project(tmp_path)
    async with endpoints.receiver() as receiver:
        async with scheduled.in_process(project, **ALLOWED) as service:
            await _add(service, url=receiver.url)
            delivered = await service.start("quick")
            await receiver.until(1)
            receiver.statuses = [503]
            missed = [await service.start("quick") for _ in range(2)]
            for run_id in missed:
                await service.until(run_id, "done")
            await receiver.until(3)
        refused = {one.headers["webhook-id"] for one in receiver.posts[1:]}
        receiver.statuses = [204]
        del receiver.posts[1:]
        async with scheduled.in_process(project, **ALLOWED) as service:
            later = await service.start("quick")
            await receiver.until(4)

    assert receiver.posts[0].content["data"]["run_id"] == delivered
    assert sorted(one.content["data"]["run_id"] for one in receiver.posts[1:]) == sorted([*missed, later])
    assert refused <= {one.headers["webhook-id"] for one in receiver.posts[1:]}
    assert len(receiver.posts) == 4


async def test_tries_are_counted_over_restarts(tmp_path: Path) -> None:
    """A start tries waiting messages at once; only a try that was due counts, and failures are shown."""
    project = Project(tmp_path)
    async with endpoints.receiver() as receiver:
        receiver.statuses = [503]
        async with scheduled.in_process(project, **ALLOWED) as service:
            added = await _add(service, url=receiver.url)
            await service.until(await service.start("quick"), "done")
            first = await _failing(service, added["endpoint_id"], 1)
        time = clock.FakeClock(scheduled.BEGIN)
        async with scheduled.in_process(project, time, **ALLOWED) as service:
            await receiver.until(2)
            early = await _listed(service, added["endpoint_id"])
            await _after(time, 5.0, receiver.posts, 3)
            second = await _failing(service, added["endpoint_id"], 2)
        time.advance(24 * 3600)
        async with scheduled.in_process(project, time, **ALLOWED) as service:
            third = await _failing(service, added["endpoint_id"], 3)
            receiver.statuses = [204]
            await _after(time, dispatcher.RETRY_SECONDS[2], receiver.posts, 5)
            await _delivered(service)
            left = await _listed(service, added["endpoint_id"])

    assert [each["attempts"] for each in (first, early, second, third, left)] == [1, 1, 2, 3, 0]
    assert (first["waiting"], first["failing"], first["last_error"]) == (1, 1, "the answer was 503")
    assert first["next_try_at"] == clock.stamp(scheduled.BEGIN + timedelta(seconds=5))
    assert (left["failing"], left["last_error"], left["next_try_at"]) == (0, None, None)


async def _failing(service: served.Served, endpoint_id: str, attempts: int) -> dict[str, Any]:
    async with asyncio.timeout(served.WAIT_SECONDS):
        while (shown := await _listed(service, endpoint_id))["attempts"] < attempts:
            await served.moment()
    return shown


async def test_an_unreadable_runs_message_is_sent_later_under_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a run's events cannot be read after a restart, other runs' messages are sent first, then its own, once."""
    project, read_events = Project(tmp_path), folder_store.FolderStore.read_events
    monkeypatch.setattr(dispatcher, "_RETRY_STORAGE_SECONDS", 0.01)
    async with endpoints.receiver() as receiver:
        receiver.statuses = [503]
        async with served.in_process(project, **ALLOWED) as service:
            await _add(service, url=receiver.url)
            first, other = [(await service.run("quick"))["run_id"] for _ in range(2)]
            await receiver.until(2)
        ids = {one.content["data"]["run_id"]: one.headers["webhook-id"] for one in receiver.posts}
        receiver.statuses = [204]
        del receiver.posts[:]

        async def read(store: folder_store.FolderStore, run_id: str) -> list[events.Event]:
            if run_id == first and len(receiver.posts) == 0:
                raise errors.Unreadable("the events cannot be read now")
            return await read_events(store, run_id)

        monkeypatch.setattr(folder_store.FolderStore, "read_events", read)
        async with served.in_process(project, **ALLOWED) as service:
            posts = await receiver.until(2)
            await _delivered(service)

    assert [one.content["data"]["run_id"] for one in posts] == [other, first]
    assert {one.content["data"]["run_id"]: one.headers["webhook-id"] for one in receiver.posts} == ids
    assert len(receiver.posts) == 2


async def test_an_ending_whose_event_is_lost_keeps_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal numbers an ending, so that its message has the same id without its event."""
    project, read_events = Project(tmp_path), folder_store.FolderStore.read_events
    async with endpoints.receiver() as receiver:
        receiver.statuses = [503]
        async with served.in_process(project, **ALLOWED) as service:
            await _add(service, url=receiver.url)
            await service.run("quick")
            (refused,) = await receiver.until(1)
        receiver.statuses = [204]
        del receiver.posts[:]

        async def read(store: folder_store.FolderStore, run_id: str) -> list[events.Event]:
            return [event for event in await read_events(store, run_id) if event.type != events.EventType.RUN_ENDED]

        monkeypatch.setattr(folder_store.FolderStore, "read_events", read)
        async with served.in_process(project, **ALLOWED):
            (told,) = await receiver.until(1)

    assert told.headers["webhook-id"] == refused.headers["webhook-id"]


@pytest.mark.parametrize("back_seconds", [30 * 60, 3 * 3600])
async def test_messages_keep_their_order_when_the_clock_is_set_back(tmp_path: Path, back_seconds: float) -> None:
    """If the clock is set back, a question and the later ending are sent in their order, also after a restart."""
    project, time = Project(tmp_path), clock.FakeClock()
    project.write(".control-room/recipes/amplifier/ask.yaml", ASKING)
    async with endpoints.receiver() as receiver:
        receiver.statuses = [503]
        async with scheduled.in_process(project, time, **ALLOWED) as service:
            await _add(service, url=receiver.url)
            time.advance(2 * 3600)
            run_id = await service.start("ask")
            await service.until(run_id, "waiting")
            await receiver.until(1)
            time.jump(-back_seconds)
            (gate,) = (await service.http.get("/api/gates")).json()
            await service.http.post(f"/api/gates/{gate['gate_id']}", json={"decision": "approve"})
            await service.until(run_id, "done")
        receiver.statuses = [204]
        del receiver.posts[:]
        async with scheduled.in_process(project, time, **ALLOWED):
            posts = await receiver.until(2)

    assert [one.content["type"] for one in posts] == ["run.waits", "run.done"]
    assert posts[0].content["timestamp"] > posts[1].content["timestamp"]


@pytest.mark.parametrize("age_seconds", [60, 2 * 3600])
async def test_runs_after_a_clock_setback_are_notified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_seconds: float
) -> None:
    """Messages are sent for a run that begins and ends after the clock was set back.

    The same is true for a run at whose ending the service dies; the next service sends its message.
    """
    project, time = Project(tmp_path), clock.FakeClock()
    async with endpoints.receiver() as receiver:
        async with scheduled.in_process(project, time, **ALLOWED) as service:
            await _add(service, url=receiver.url)
            time.advance(age_seconds)
            await service.run("quick")
            await receiver.until(1)
            time.jump(-3 * 3600)
            await service.run("quick")
            await receiver.until(2)
            await _delivered(service)
            time.advance(2 * 3600)
            await service.run("quick")
            await receiver.until(3)
            await _delivered(service)
            time.jump(-90 * 60)

            async def turn(_: dispatcher.Dispatcher) -> None:
                await asyncio.Event().wait()

            with monkeypatch.context() as dying:
                dying.setattr(dispatcher.Dispatcher, "_read_feed", turn)
                last = (await service.run("quick"))["run_id"]
        async with scheduled.in_process(project, time, **ALLOWED):
            posts = await receiver.until(4)

    assert [one.content["data"]["run_id"] for one in posts].count(last) == 1
    assert len({one.headers["webhook-id"] for one in posts}) == 4


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=12))
def test_messages_of_a_run_are_never_put_into_another_order(came: list[tuple[str, int]]) -> None:
    """The messages of each run keep their order in spite of the clock; without jumps, all are in order of time."""
    messages = [
        notifications.Message(
            message_id=str(number),
            kind="done",
            at=f"2026-02-10T14:3{minute}:00.000Z",
            run_id=run,
            recipe_id="r",
            text="",
        )
        for number, (run, minute) in enumerate(came)
    ]
    found = derivation.in_order(messages)

    for run in "abc":
        assert [each for _, each in found if each.run_id == run] == [each for each in messages if each.run_id == run]
    assert [counts_from for counts_from, _ in found] == sorted(counts_from for counts_from, _ in found)
    assert all(counts_from >= each.at for counts_from, each in found)


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
async def test_every_ending_is_notified_after_any_power_loss(tmp_path: Path, step: int) -> None:
    """After a power loss at any write or sync, the message of each done run is sent, under one id."""
    project = Project(tmp_path)
    problems, count = await powercuts.sweep(
        "outbox", step, partial(_first_life, project), partial(_second_life, project)
    )

    assert problems == []
    assert count > 30


async def _first_life(project: Project, disk: powercuts.PowerCut) -> bool:
    """Let two runs end whose messages are refused, and return whether the endpoint was acknowledged before the loss."""
    async with endpoints.receiver() as receiver:
        receiver.statuses = [503]
        async with scheduled.in_process(project, make_store=powercuts.stores(disk), **ALLOWED) as service:
            await service.http.post(ADDRESS, json={"url": receiver.url}, headers={"Idempotency-Key": "one"})
            was_acknowledged = disk.left is None
            for count in (1, 2):
                await service.until(await service.start("quick"), "done")
                await receiver.until(count)
    return was_acknowledged


async def _second_life(project: Project, disk: powercuts.PowerCut, was_acknowledged: bool) -> str | None:
    """Start again from the content of the disk with another receiver, and return the problems."""
    assert disk.left is not None
    files = [name for name in disk.left.names("outbox") if not name.startswith(".")]
    if not files:
        return "the endpoint is lost" if was_acknowledged else None
    async with endpoints.receiver() as receiver:
        kept = json.loads(disk.left.read(f"outbox/{files[0]}"))
        disk.left.write(f"outbox/{files[0]}", json.dumps(kept | {"url": receiver.url}).encode(), sync=True)
        async with scheduled.in_process(project, make_store=powercuts.stores(disk.left), **ALLOWED) as service:
            runs = await service.runs()
            for run in runs:
                await service.until(run["run_id"], "done")
            try:
                async with asyncio.timeout(served.WAIT_SECONDS):
                    await receiver.until(len(runs))
            except TimeoutError:
                return f"{len(receiver.posts)} of {len(runs)} are told"
    ids = {(one.content["data"]["run_id"], one.headers["webhook-id"]) for one in receiver.posts}
    return None if {run_id for run_id, _ in ids} == {run["run_id"] for run in runs} and len(ids) == len(runs) else "ids"


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("127.0.0.1", False),
        ("10.0.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b:1::7f00:1", False),
        ("::127.0.0.1", False),
        ("fec0::1", False),
        ("::ffff:0:127.0.0.1", False),
        ("4000::1", False),
        ("192.0.0.8", False),
        ("192.168.7.1", True),
    ],
)
def test_private_addresses_are_not_contacted(address: str, allowed: bool) -> None:
    """Only public addresses are contacted, and addresses of networks that the settings name."""
    assert webhook_sender.AddressGuard(("192.168.7.0/24",)).allows("hooks.example.org", address) is allowed


async def test_a_name_is_checked_by_the_address_that_it_leads_to(tmp_path: Path) -> None:
    """A name that resolves to loopback is refused unless a setting allows it, and redirects are not followed."""
    async with endpoints.receiver() as receiver:
        url = receiver.url.replace("127.0.0.1", "localhost")
        async with served.in_process(Project(tmp_path / "one")) as service:
            refused = await _tried(service, url)
            none = await service.http.post(ADDRESS, json={"url": receiver.url})
        assert receiver.posts == []
        async with served.in_process(Project(tmp_path / "two"), notify_allowed=("localhost",)) as service:
            taken = await _tried(service, url)
            receiver.statuses = [302]
            redirected = await _tried(service, url)
        posts = list(receiver.posts)

    assert (refused["delivered"], "not public; CONTROL_ROOM_NOTIFY_ALLOWED" in refused["detail"]) == (False, True)
    assert (none.status_code, none.json()["flaws"][0]["code"]) == (400, "not_public")
    assert taken == {"delivered": True, "detail": "the answer was 204"}
    assert redirected == {"delivered": False, "detail": "the answer was 302; redirects are not followed"}
    assert len(posts) == 2


async def test_a_receiver_that_never_answers_is_named_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is accepted but never answered ends at its time limit, and the error names this."""
    monkeypatch.setattr(webhook_sender, "SEND_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with served.in_process(Project(tmp_path), notify_allowed=("127.0.0.1",)) as service:
            tried = await _tried(service, f"http://127.0.0.1:{silent.getsockname()[1]}/")

    assert tried == {"delivered": False, "detail": "no answer within 0.05 seconds"}


async def test_messages_travel_by_e_mail(tmp_path: Path) -> None:
    """A mail has the sentence as its subject and the message's id; a password is not sent without TLS."""
    project = Project(tmp_path)
    async with endpoints.mailbox() as mailbox:
        mail: dict[str, Any] = {"smtp_url": mailbox.url, "mail_from": "room@example.org"}
        async with served.in_process(project, **mail) as service:
            await _add(service, to=["a@example.org", "b@example.org"])
            run = await service.run("quick", description="x")
            async with asyncio.timeout(served.WAIT_SECONDS):
                while not mailbox.mails:
                    await served.moment()
        mail["smtp_url"] = mailbox.url.replace("//", "//user:hunter2hunter2@")
        async with served.in_process(Project(tmp_path / "other"), **mail) as service:
            added = await _add(service, to=["a@example.org"])
            unsafe = (await service.http.post(f"{ADDRESS}/{added['endpoint_id']}/test")).json()

    assert mailbox.recipients == ["a@example.org", "b@example.org"]
    assert "Subject: [Control Room] quick is done" in mailbox.mails[0]
    assert f"run: {run['run_id']}" in mailbox.mails[0]
    assert "Message-ID: <msg_" in mailbox.mails[0]
    assert set(mailbox.greetings) == {"example.org"}
    assert unsafe["delivered"] is False
    assert "offers no TLS" in unsafe["detail"]
    assert "AUTH" not in mailbox.commands


async def test_messages_are_given_to_commands(tmp_path: Path) -> None:
    """A program reads the message as JSON; if it fails, the message is not delivered."""
    project = Project(tmp_path)
    async with served.in_process(project) as service:
        added = await _add(service, argv=["sh", "-c", "cat >> out.jsonl"])
        bad = await _add(service, argv=["sh", "-c", "exit 3"], kinds=["stalled"])
        killed = await _add(service, argv=["sh", "-c", "kill -9 $$"], kinds=["stalled"])
        missing = await _add(service, argv=["no-such-program-here"], kinds=["stalled"])
        run = await service.run("quick")
        async with asyncio.timeout(served.WAIT_SECONDS):
            while (await _listed(service, added["endpoint_id"]))["waiting"] or not (tmp_path / "out.jsonl").exists():
                await served.moment()
        failed = [
            (await service.http.post(f"{ADDRESS}/{one['endpoint_id']}/test")).json() for one in (bad, killed, missing)
        ]

    message = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert (message["type"], message["data"]["run_id"]) == ("run.done", run["run_id"])
    assert [one["delivered"] for one in failed] == [False] * 3
    assert [one["detail"] for one in failed[:2]] == ["exit code 3", "signal 9"]
    assert "[program_missing]" in failed[2]["detail"]


async def test_a_failed_program_reports_the_end_of_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The list, the log and the answer of a test show it: standard error before standard output, without secrets."""
    monkeypatch.setenv("CHAT_TOKEN", "tok-5f2e9a77")
    says = {
        "fails": "echo begun; echo no route to chat with $CHAT >&2; exit 3",
        "prints": "printf 'wrong\\tchannel\\n\\033[31mbye\\n'; exit 4",
        "dies": "echo out of memory >&2; kill -9 $$",
        "floods": "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done; exit 5",
    }
    async with served.in_process(Project(tmp_path)) as service:
        added = {
            name: (await _add(service, argv=["env", "CHAT=tok-5f2e9a77", "sh", "-c", script]))["endpoint_id"]
            for name, script in says.items()
        }
        await service.run("quick")
        shown = dict[str, str | None]()
        async with asyncio.timeout(served.WAIT_SECONDS):
            while len(shown) < len(added):
                rows = {name: await _listed(service, endpoint_id) for name, endpoint_id in added.items()}
                shown = {name: row["last_error"] for name, row in rows.items() if row["last_error"]}
                await served.moment()
        tried = (await service.http.post(f"{ADDRESS}/{added['fails']}/test")).json()

    assert shown["fails"] == tried["detail"] == "exit code 3: no route to chat with ***"
    assert (shown["prints"], shown["dies"]) == ("exit code 4: wrong channel [31mbye", "signal 9: out of memory")
    assert str(shown["floods"]).startswith("exit code 5: … ")
    assert str(shown["floods"]).endswith("line 498 line 499")
    assert len(str(shown["floods"])) < 500
    assert "no route to chat with ***" in caplog.text
    assert "tok-5f2e9a77" not in caplog.text


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "$"),
        ({"url": "http://x", "to": ["a@b.c"]}, "$"),
        ({"url": "ftp://example.org"}, "$.url"),
        ({"url": "http://user:pw@example.org"}, "$.url"),
        ({"url": "http://example.org:99999"}, "$.url"),
        ({"url": "https://exa mple.org"}, "$.url"),
        ({"url": "https://example.org", "signing_secret": "short"}, "$.signing_secret"),
        ({"url": "https://example.org", "signing_secret": "whsec_MTIzNDU2Nzg5MDEyMzQ1"}, "$.signing_secret"),
        ({"to": ["a@example.org\r\nBcc: b@example.org"]}, "$.to[0]"),
        ({"to": ["nobody"]}, "$.to[0]"),
        ({"argv": ["x"], "kinds": ["never"]}, "$.kinds[0]"),
        ({"argv": ["x"], "label": "book"}, "$.label"),
        ({"argv": ["x"] * 51}, "$.argv"),
        ({"argv": [" ", "x"]}, "$.argv[0]"),
        ({"argv": ["x"], "colour": "red"}, "$.colour"),
        ({"url": "http://10.9.9.9/in"}, "$.url"),
        ({"url": "http://[::1]:8080/in"}, "$.url"),
        ({"url": "http://2130706433/in"}, "$.url"),
        ({"url": "http://0x7f.1/in"}, "$.url"),
    ],
)
async def test_an_endpoint_of_a_wrong_form_is_refused(tmp_path: Path, body: dict[str, Any], path: str) -> None:
    """The refusal names the place of the fault, and no endpoint is added."""
    async with served.in_process(Project(tmp_path)) as service:
        answer = await service.http.post(ADDRESS, json=body)
        found = (await service.http.get(ADDRESS)).json()

    assert (answer.status_code, answer.json()["code"]) == (400, "request_invalid"), answer.text
    assert answer.json()["flaws"][0]["path"] == path
    assert found == []


async def test_an_endpoint_for_no_recipe_is_refused(tmp_path: Path) -> None:
    """An endpoint for an unknown recipe is refused with the nearest name; runs of a removed recipe are reported."""
    project = Project(tmp_path)
    async with endpoints.receiver() as receiver, scheduled.in_process(project, **ALLOWED) as service:
        added = await _add(service, url=receiver.url, recipe_id="quick")
        wrong = [
            await service.http.post(ADDRESS, json={"url": receiver.url, "recipe_id": "quik"}),
            await service.http.patch(f"{ADDRESS}/{added['endpoint_id']}", json={"recipe_id": "quik"}),
            await service.http.post("/api/triggers", json={"recipe_id": "quik", "webhook": {}}),
            await service.http.post("/api/triggers", json={"recipe_id": "quik", "schedule": {"every_seconds": 60}}),
            await service.http.post("/api/triggers", json={"recipe_id": "quik", "files": {"pattern": "in/*.md"}}),
        ]
        own = await service.http.post(ADDRESS, json={"url": receiver.url, "recipe_id": "conference"})
        run_id = await service.start("quick")
        (project.data / "recipes" / "quick.json").unlink()
        await receiver.until(1)
        changed = await service.http.patch(f"{ADDRESS}/{added['endpoint_id']}", json={"kinds": ["done"]})

    assert [(answer.status_code, answer.json()["code"]) for answer in wrong] == [(400, "unknown_recipe")] * 5
    assert all("did you mean quick?" in answer.json()["detail"] for answer in wrong), wrong[0].json()
    assert (own.status_code, changed.status_code) == (201, 200)
    assert receiver.posts[0].content["data"]["run_id"] == run_id


async def test_adding_is_repeated_safely_and_removing_ends_it(tmp_path: Path) -> None:
    """A repetition finds the endpoint without its secret; a removed endpoint receives no more messages."""
    project, once = Project(tmp_path), {"Idempotency-Key": "one"}
    async with endpoints.receiver() as receiver, served.in_process(project, **ALLOWED) as service:
        first = await service.http.post(ADDRESS, json={"url": receiver.url}, headers=once)
        again = await service.http.post(ADDRESS, json={"url": receiver.url}, headers=once)
        other = await service.http.post(ADDRESS, json={"argv": ["x"]}, headers=once)
        listed = (await service.http.get(ADDRESS)).text
        await service.run("quick")
        await receiver.until(1)
        address = f"{ADDRESS}/{first.json()['endpoint_id']}"
        removed = await service.http.delete(address)
        gone = await service.http.post(f"{address}/test")
        await service.run("quick")
        await _add(service, argv=["sh", "-c", "cat > last.json"])
        await service.run("quick")
        async with asyncio.timeout(served.WAIT_SECONDS):
            while not (tmp_path / "last.json").exists():
                await served.moment()

    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert first.json()["signing_secret"].startswith("whsec_")
    assert "signing_secret" not in again.json()
    assert "whsec_" not in listed
    assert (removed.status_code, gone.json()["code"]) == (204, "endpoint_not_found")
    assert len(receiver.posts) == 1


async def _tried(service: served.Served, url: str) -> dict[str, Any]:
    added = await _add(service, url=url, kinds=["stalled"])
    found: dict[str, Any] = (await service.http.post(f"{ADDRESS}/{added['endpoint_id']}/test")).json()
    return found


async def _after(time: clock.FakeClock, seconds: float, found: Sized, count: int) -> None:
    """Wait until this number is found, and end every sleep of exactly this length, also those of others."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while len(found) < count:
            ends = [end for end, _, waiter in time._sleepers if not waiter.done()]
            if any(abs(end - time.monotonic() - seconds) < 1e-6 for end in ends):
                time.advance(seconds)
            await served.moment()


async def _until_dead(service: served.Served, address: str, count: int = 1) -> list[dict[str, Any]]:
    async with asyncio.timeout(served.WAIT_SECONDS):
        while len(found := (await service.http.get(f"{address}/dead")).json()) != count:
            await served.moment()
    return list(found)
