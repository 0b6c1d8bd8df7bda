"""Conversations over HTTP: a run owns its conversation from start to end, and no other run uses it."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import bootstrap, clock, errors
from app.domain import runs, states
from app.services import requests
from app.storage import agent_sessions, conversation_retention, layout
from app.storage.disk import os_disk
from tests.integration import served
from tests.integration.held import DELAY_SECONDS, Held
from tests.integration.project import Project
from tests.unit.dialects.agent_recipes.recipe_harness import AGAIN, OTHER_SAID, recipe, says

OWN = ".control-room/recipes/agent_recipes"
SAID = {"args": {"backend": "said"}}
TALK = "a-talk-of-last-week"


async def _post(service: served.Served, talk: str, recipe_id: str = "small", **body: Any) -> httpx.Response:
    args = SAID["args"] | {"agent_session_id": talk}
    return await service.http.post("/api/runs", json={"recipe_id": recipe_id, "args": args} | body)


async def _talk(service: served.Served, run_id: str) -> str:
    return str((await service.show(run_id))["machine"]["sessionId"])


async def _run_ids(service: served.Served) -> set[str]:
    return {run["run_id"] for run in (await service.http.get("/api/runs")).json()}


def _locked(answer: httpx.Response, holder: str) -> None:
    told = answer.json()
    assert (answer.status_code, told["code"], told["facts"]["holder"]) == (409, "session_locked", holder), told
    assert holder in told["detail"]


@pytest.fixture(autouse=True)
def small(project: Project) -> None:
    """Add a recipe whose agent hangs in its second step, in every conversation."""
    project.write(f"{OWN}/small.json", json.dumps(recipe()))
    project.say("review", text=says("issues-found"))
    project.say("fix", hang=True)


async def test_a_conversation_of_a_run_is_its_own(service: served.Served) -> None:
    """While a run is unfinished, a start in its conversation is refused, and creates no run."""
    holder = await service.start("small", **SAID)
    await service.until(holder, step="fix")
    talk = await _talk(service, holder)
    refused = await _post(service, talk)
    seen = await _run_ids(service)
    await service.http.post(f"/api/runs/{holder}/pause")
    paused = await _post(service, talk)
    await service.http.post(f"/api/runs/{holder}/cancel")
    service.project.say("review", text=OTHER_SAID)
    after = await _post(service, talk)
    done = await service.until(after.json()["run_id"], "done", "failed")

    _locked(refused, holder)
    _locked(paused, holder)
    assert seen == {holder}
    assert (done["status"], done["machine"]["sessionId"]) == ("done", talk)


async def test_previews_of_a_locked_conversation(service: served.Served) -> None:
    """The check of a start, and the preview of a resume, are refused like their orders while a run has a
    conversation.
    """
    first = (await _post(service, TALK)).json()["run_id"]
    await service.until(first, step="fix")
    await service.http.post(f"/api/runs/{first}/cancel")
    await service.until(first, "cancelled")
    holder = (await _post(service, TALK)).json()["run_id"]
    start = {"recipe_id": "small", "args": SAID["args"] | {"agent_session_id": TALK}}
    looked = [
        (await service.http.post("/api/preflight", json=start)).json(),
        (await service.http.post(f"/api/runs/{first}/preview", json={"order": "resume"})).json(),
    ]
    refused = [await _post(service, TALK), await service.http.post(f"/api/runs/{first}/resume", json={})]
    await service.http.post(f"/api/runs/{holder}/cancel")
    await service.until(holder, "cancelled")
    free = (await service.http.post(f"/api/runs/{first}/preview", json={"order": "resume"})).json()

    for answer in refused:
        _locked(answer, holder)
    assert [(found["ok"], [flaw["code"] for flaw in found["problems"]]) for found in looked] == [
        (False, ["session_locked"])
    ] * 2
    assert all(holder in found["problems"][0]["message"] for found in looked)
    assert free["ok"], free["problems"]


async def test_a_write_that_is_refused_once_stops_no_conversation(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that cannot record its conversation waits for the disk, as with its journal, and then continues."""
    asked: list[str] = []
    unhindered = os_disk.OsDisk.write

    def write(files: os_disk.OsDisk, path: str, content: bytes, *, sync: bool) -> None:
        if path.endswith("holder.json"):
            asked.append(path)
            # The first write is that of the process that accepts the request, the next that of the run itself.
            if len(asked) == 2:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        unhindered(files, path, content, sync=sync)

    monkeypatch.setattr(os_disk.OsDisk, "write", write)
    async with served.in_process(project) as service:
        run_id = await service.start("small", **SAID)
        shown = await service.until(run_id, step="fix")
        await service.http.post(f"/api/runs/{run_id}/cancel")
        await service.until(run_id, "cancelled")
        # The stream ends when all lines are written.
        await service.http.get(f"/api/runs/{run_id}/events")
        events = (service.project.data / "runs" / run_id / "events.jsonl").read_text(encoding="utf-8")
        happened = [json.loads(line)["type"] for line in events.splitlines()]

    assert (shown["status"], shown["error"]) == ("running", None)
    assert {step["attempt"] for step in shown["steps"]} == {1}
    assert [event for event in happened if event.startswith("storage.")] == ["storage.failed", "storage.healed"]
    assert "run.paused" not in happened


async def test_a_run_that_waits_for_its_turn_has_its_conversation(service: served.Served) -> None:
    """A run owns the conversation from its request as soon as it is accepted, before it begins."""
    first = await service.start("small", **SAID)
    await service.until(first, step="fix")
    waiting = await _post(service, TALK)
    refused = await _post(service, TALK, share_workspace=True)
    other = await _post(service, "another", share_workspace=True)

    assert (await service.show(waiting.json()["run_id"]))["status"] == "pending"
    _locked(refused, waiting.json()["run_id"])
    assert other.status_code == 201


async def test_a_run_that_waits_for_its_turn_has_its_own_conversation(service: served.Served) -> None:
    """A run that will begin a new conversation owns it as soon as it is accepted."""
    first = await service.start("small", **SAID)
    await service.until(first, step="fix")
    waiting = await service.start("small", **SAID)
    talk = runs.agent_session_id(waiting, 0)
    refused = await _post(service, talk, share_workspace=True)
    await service.http.post(f"/api/runs/{waiting}/cancel")
    await service.until(waiting, "cancelled")
    after = await _post(service, talk, share_workspace=True)

    _locked(refused, waiting)
    assert after.status_code == 201


async def test_of_two_at_once_one_has_it(service: served.Served) -> None:
    """Of several concurrent starts in one conversation, exactly one succeeds."""
    answers = await asyncio.gather(*(_post(service, TALK, share_workspace=True) for _ in range(5)))
    made = [answer.json()["run_id"] for answer in answers if answer.status_code == 201]

    assert len(made) == 1
    for answer in answers:
        if answer.status_code != 201:
            _locked(answer, made[0])


async def test_a_repetition_finds_its_run(service: served.Served) -> None:
    """A repeated request with its key finds its run, and is not refused because of the conversation."""
    body = {"recipe_id": "small", "args": SAID["args"] | {"agent_session_id": TALK}}
    asked = [
        service.http.post("/api/runs", json=body, headers={"Idempotency-Key": "once"}, timeout=20) for _ in range(3)
    ]
    answers = await asyncio.gather(*asked)

    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert {answer.status_code for answer in answers} <= {200, 201}


async def test_a_restart_of_the_recipe_leaves_the_conversation(service: served.Served, held: Held) -> None:
    """A run that restarts its recipe owns its new conversation, and releases the earlier one."""
    again = recipe(id="again", initialStep="commit", steps={"commit": AGAIN | {"prompt": "Again."}})
    text = json.dumps(again).replace('"recipeId": "small"', '"recipeId": "again"')
    service.project.write(f"{OWN}/again.json", text)
    service.project.say("commit", text=says("committed"), delay_seconds=DELAY_SECONDS)
    service.project.say("restart1/commit", hang=True)
    service.project.say("review", text=OTHER_SAID)
    holder = await service.start("again", **SAID)
    first = (await service.until(holder, step="commit"))["machine"]["sessionId"]
    held.release()
    await service.until(holder, step="restart1/commit")
    second = await _talk(service, holder)
    free = await _post(service, first, share_workspace=True)
    done = await service.until(free.json()["run_id"], "done", "failed")

    assert first != second
    assert (free.status_code, done["status"]) == (201, "done")
    _locked(await _post(service, second), holder)


async def test_an_unfinished_run_owns_its_conversation_after_a_restart(project: Project) -> None:
    """An unfinished run still owns its conversation after a restart of the service."""
    async with served.in_process(project) as service:
        holder = await service.start("small", **SAID)
        await service.until(holder, step="fix")
        talk = await _talk(service, holder)
        given = (await _post(service, TALK)).json()["run_id"]
    async with served.in_process(project) as service:
        answers = await _post(service, talk), await _post(service, TALK)

        _locked(answers[0], holder)
        _locked(answers[1], given)


async def test_a_run_of_another_process_has_its_conversation(project: Project) -> None:
    """A run that a command executes keeps the service's runs out of its conversation, and vice versa."""
    async with served.in_process(project) as service, bootstrap.build(served.chosen(project)) as beside:
        asked = requests.StartRequest(
            recipe_id="small", args=SAID["args"] | {"agent_session_id": TALK}, owner="process", share_workspace=True
        )
        holder = (await beside.runs.start(asked)).run_id
        refused = await _post(service, TALK)
        ours = await _post(service, "ours")
        taken = requests.StartRequest(recipe_id="small", args=SAID["args"] | {"agent_session_id": "ours"})
        with pytest.raises(errors.Conflict) as told:
            await beside.runs.start(taken)

        _locked(refused, holder)
        assert (told.value.code, told.value.detail["holder"]) == ("session_locked", ours.json()["run_id"])
        await beside.runs.cancel(holder)
        assert await beside.engine.ended(holder) is states.RunState.CANCELLED
        assert (await _post(service, TALK)).status_code == 201


async def test_a_failed_run_is_not_sent_on_into_a_taken_conversation(service: served.Served) -> None:
    """A failed run is not resumed while another run owns its conversation."""
    service.project.say("review", text="No outcome.")
    failed = await service.run("small", **SAID)
    talk = failed["machine"]["sessionId"]
    service.project.say("review", hang=True)
    holder = (await _post(service, talk)).json()["run_id"]
    await service.until(holder, step="review")
    refused = await service.http.post(f"/api/runs/{failed['run_id']}/resume", json={})
    await service.http.post(f"/api/runs/{holder}/cancel")
    service.project.say("*", text=OTHER_SAID)
    service.project.say("review.reminder", text=OTHER_SAID)
    accepted = await service.http.post(f"/api/runs/{failed['run_id']}/resume", json={})

    _locked(refused, holder)
    assert accepted.status_code == 200


async def test_a_damaged_claim_blocks_its_conversation(service: served.Served) -> None:
    """A damaged claim blocks the conversation, is named in the refusal, and is not removed."""
    folder = service.project.data / layout.agent_session_folder(TALK)
    _put(folder / "claim.json", "nonsense")
    refused = await _post(service, TALK)

    assert (refused.status_code, refused.json()["code"]) == (409, "agent_session_damaged")
    assert refused.json()["facts"]["file"].endswith("claim.json")
    assert await _run_ids(service) == set()


async def test_a_claim_of_a_run_that_never_was_counts_for_nothing(service: served.Served) -> None:
    """A claim without a run, left by a crash, does not block the conversation."""
    folder = service.project.data / layout.agent_session_folder(TALK)
    claim = {"agent_session_id": TALK, "run_id": "20260101T000000Z-gone00"}
    _put(folder / "claim.json", json.dumps(claim))

    assert (await _post(service, TALK)).status_code == 201


async def test_a_backend_that_does_not_exist_is_refused(service: served.Served) -> None:
    """A start and a resume with an unknown backend are refused with the nearest name."""
    refused = await service.http.post("/api/runs", json={"recipe_id": "small", "args": {"backend": "sadi"}})
    seen = await _run_ids(service)
    service.project.say("review", text="No outcome.")
    failed = await service.run("small", **SAID)
    again = await service.http.post(f"/api/runs/{failed['run_id']}/resume", json={"args": {"backend": "siad"}})

    for answer in (refused, again):
        assert (answer.status_code, answer.json()["code"]) == (400, "unknown_backend")
        assert [flaw["path"] for flaw in answer.json()["flaws"]] == ["$.args.backend"]
        assert "did you mean said?" in answer.json()["detail"]
        assert "said" in answer.json()["facts"]["backends"]
    assert seen == set()


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)


# -- removal


async def _left(project: Project, days_later: float, **chosen: Any) -> set[str]:
    """Let a service start and stop this number of days later, and return the conversations that still have a claim."""
    platform = bootstrap.real_platform({})
    platform = dataclasses.replace(platform, clock=clock.FakeClock(datetime.now(UTC) + timedelta(days=days_later)))
    kept = agent_sessions.in_folder(project.data)
    async with bootstrap.build(served.chosen(project, **chosen), platform=platform) as application:
        before = platform.clock.now() - timedelta(days=90)
        await conversation_retention.sweep(kept, application.store, before)
    left = {agent_session_id for agent_session_id, _ in await kept.claims()}
    kept.close()
    return left


async def test_an_old_conversation_is_forgotten(project: Project) -> None:
    """A conversation is removed ninety days after its last run, unless the run is unfinished or the claim damaged."""
    project.say("review", text=OTHER_SAID)
    async with served.in_process(project) as service:
        done = await _post(service, TALK)
        await service.until(done.json()["run_id"], "done")
        project.say("review", hang=True)
        going = await _post(service, "one-that-goes-on")
        await service.until(going.json()["run_id"], step="review")
    (project.data / layout.AGENT_SESSIONS / "strange").mkdir()
    (project.data / layout.AGENT_SESSIONS / "strange" / "claim.json").write_text("[]")
    soon, late = await _left(project, 89), await _left(project, 91)

    assert (soon, late) == ({TALK, "one-that-goes-on"}, {"one-that-goes-on"})
    assert not (project.data / layout.agent_session_folder(TALK)).exists()
    assert (project.data / layout.AGENT_SESSIONS / "strange").exists()


async def test_a_run_that_cannot_be_read_keeps_its_own_conversation_only(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversation whose run cannot be read is kept, and later conversations in the list are removed."""
    kept = agent_sessions.in_folder(project.data)
    unreadable = "20200210T143000Z-abc123"
    await kept.claim("a-talk-of-it", unreadable)
    await kept.claim("b-talk-of-another", "20200210T143000Z-abc124")
    async with bootstrap.build(served.chosen(project)) as application:
        summary = application.store.summary

        async def fails(run_id: str) -> Any:
            if run_id == unreadable:
                raise errors.Unreadable("the run cannot be read now")
            return await summary(run_id)

        monkeypatch.setattr(application.store, "summary", fails)
        forgotten = await conversation_retention.sweep(kept, application.store, datetime.now(UTC))
    left = [agent_session_id for agent_session_id, _ in await kept.claims()]
    kept.close()

    assert (forgotten, left) == (1, ["a-talk-of-it"])


async def test_a_service_forgets_when_it_starts(project: Project) -> None:
    """At its start a service removes the conversation of a run deleted long ago, unless it keeps all for ever."""
    kept = agent_sessions.in_folder(project.data)
    await kept.claim(TALK, "20200210T143000Z-abc123")
    async with served.in_process(project, keep_conversations_days=0) as service:
        await service.run("quick")
    remembered = await kept.claimant(TALK)
    async with served.in_process(project) as service:
        await service.run("quick")
        async with asyncio.timeout(served.WAIT_SECONDS):
            while await kept.claims():  # noqa: ASYNC110 - the service forgets in a task of its own
                await asyncio.sleep(0.01)
    kept.close()

    assert remembered == "20200210T143000Z-abc123"


async def test_a_conversation_in_use_is_not_forgotten(project: Project) -> None:
    """A conversation that is held, or that another run has claimed meanwhile, is kept."""
    ours, theirs = agent_sessions.in_folder(project.data), agent_sessions.in_folder(project.data)
    await ours.claim(TALK, "a-run")
    async with theirs.hold(TALK, "a-run"):
        while_held = await ours.forget(TALK, "a-run")
    of_another = await ours.forget(TALK, "another")
    forgotten = await ours.forget(TALK, "a-run")

    assert (while_held, of_another, forgotten) == (False, False, True)
    assert await theirs.claimant(TALK) is None
    ours.close()
    theirs.close()


async def test_a_conversation_that_is_being_forgotten_can_be_begun(tmp_path: Path) -> None:
    """A run can begin a conversation during its removal, after a short wait."""
    ours = agent_sessions.in_folder(tmp_path)
    await ours.claim(TALK, "a-run")

    async def speak() -> None:
        async with ours.hold(TALK, "another"):
            await ours.claim(TALK, "another")

    forgotten, _ = await asyncio.gather(ours.forget(TALK, "a-run"), speak())

    assert forgotten
    assert await ours.claimant(TALK) == "another"
    ours.close()
