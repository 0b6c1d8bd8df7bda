"""Plans that continue: in another run, from files of another version or a person, and after edits by hand."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.domain import plans
from app.flows.session_plan import driver
from tests.unit.services.plans import given, plan_harness
from tests.unit.services.plans.plan_harness import task
from tests.unit.worker import pools

Harness = plan_harness.Harness


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> plan_harness.Place:
    """Return a project for all harnesses."""
    made = plan_harness.Place(tmp_path_factory.mktemp("place"))
    made.project.say("chief*", text=plan_harness.says({"id": 1, "description": "sweep room 1"}))
    return made


async def lines(harness: Harness, run_id: str) -> list[str]:
    """Return the keys of a journal's lines."""
    return [record.key for record in (await harness.store.read(run_id)).records]


async def test_a_full_journal_is_continued_in_a_further_run(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its limit of inputs a plan continues in another run from its file, and repeats no work."""
    monkeypatch.setattr(driver, "MOST_INPUTS", 4)
    session_id = await harness.started(*(task(f"sweep room {number}") for number in range(1, 6)))
    plan = await harness.rested(session_id)

    assert plan.status is plans.PlanState.DONE
    assert len(harness.toolbox.performed) == 2 * 5
    assert len(await harness.runs()) == 5
    assert (await lines(harness, session_id))[-1] == "input#5"
    assert (await harness.store.summary(session_id)).status == "done"
    assert (await harness.store.summary(f"{session_id}-2")).dialect == "session_plan"

    paused = await harness.application.plans.add_task(session_id, task("sweep room 6"))

    assert paused.plan.status is plans.PlanState.PAUSED


@pytest.mark.parametrize("point", ["run.before_ended", "run.after_ended", "storage.create.before_rename"])
async def test_a_crash_while_it_continues(
    place: plan_harness.Place, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """After a crash at any point between two runs of a plan, the next process continues it."""
    monkeypatch.setattr(driver, "MOST_INPUTS", 3)
    harness = await Harness(place).open()
    session_id = await harness.create(task("sweep room 1"))
    await harness.application.plans.approve(session_id)
    # The task begins in the second run: the next points are the first run's ending and the second one's creation.
    left = harness.crash_when(point, 1)
    starting = harness.start_soon(session_id)
    await harness.take_over(left)
    await plan_harness.over(starting)
    await harness.store.start()

    assert (await lines(harness, session_id))[-1] == "input#4"
    with pytest.raises(errors.NotFound):
        await harness.store.summary(f"{session_id}-2")

    await harness.store.close()
    await harness.restart()

    assert (await harness.rested(session_id)).status is plans.PlanState.DONE
    assert await harness.runs() == ["done"]

    await harness.close()


async def test_a_run_that_a_newer_driver_cannot_replay_is_made_anew(
    place: plan_harness.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver whose plans differ from the journal continues them from their files without an order."""
    harness = await Harness(place).open()
    harness.toolbox.hold(1)
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1))
    await harness.toolbox.begun(1)
    await harness.until(session_id, lambda plan: plan.tasks[0].run_id is not None)
    await harness.crash()
    monkeypatch.setattr(driver, "sha256", lambda plan: None if plan is None else f"2:{plan.revision}")
    monkeypatch.setattr(driver, "NAME", driver.NAME)
    harness.toolbox.release(1)
    await harness.restart()
    plan = await harness.rested(session_id)

    assert (plan.status, [each.attempt for each in plan.tasks]) == (plans.PlanState.DONE, [1, 1])
    assert len(await harness.runs()) == 2

    await harness.close()


def of_old(session_id: str, status: str, *tasks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a plan's file as 0.1.0 wrote it."""
    frame = {"session_id": session_id, "created_by": "user", "status": status, "created_at": "2026-02-10T14:00:00Z"}
    return {**frame, "updated_at": "2026-02-10T14:00:00Z", "revision": 4, "tasks": list(tasks), **fields}


OLD = {"id": 1, "description": "sweep room 1", "recipe_id": "sweep", "deps": [], "dod": "", "attempt": 0}


@pytest.mark.parametrize(
    ("status", "order", "after"),
    [
        ("draft", "approve", "approved"),
        ("approved", "start", "running"),
        ("running", "pause", "paused"),
        ("paused", "resume", "running"),
        ("done", "start", None),
        ("failed", "start", None),
    ],
)
async def test_plans_of_the_first_version_in_all_states(
    place: plan_harness.Place, status: str, order: str, after: str | None
) -> None:
    """A plan of 0.1.0 is taken over in any state, with its running child, and accepts the next order."""
    harness = await Harness(place).open()
    harness.toolbox.hold(1, 2)
    other = await harness.started(task("sweep room 1"))
    await harness.toolbox.begun(1)
    running = await harness.until(other, lambda plan: plan.tasks[0].run_id is not None)
    await harness.crash()
    child = {**OLD, "status": "running", "run_id": running.tasks[0].run_id, "attempt": 1}
    done = {**OLD, "status": "done", "run_id": "run-1", "attempt": 1}
    failed = {**done, "status": "failed", "error": {"code": "x", "message": "y"}}
    first = {"done": done, "failed": failed, "running": child, "paused": child}.get(
        status, {**OLD, "status": "pending"}
    )
    rest = [] if status in ("done", "failed") else [{**OLD, "id": 2, "description": "sweep room 2", "deps": [1]}]
    harness.put("sp_old", of_old("sp_old", status, first, *rest))
    harness.store.disk.remove(f"sessions/{other}/plan.json")
    await harness.restart()
    shown = await harness.show("sp_old")

    assert (shown.status.value, shown.revision, shown.tasks[0].run_id) == (status, 4, first.get("run_id"))

    if after is None:
        added = await harness.application.plans.add_task("sp_old", task("sweep room 3"))

        assert added.plan.tasks[-1].id == 2
    else:
        moved = await getattr(harness.application.plans, order)("sp_old")

        assert (moved.status.value, moved.tasks[0].run_id) == (after, first.get("run_id"))

    if status in ("running", "paused"):
        harness.toolbox.release(1)
        plan = await harness.comes_to("sp_old", t1="done")

        assert plan.tasks[0].attempt == 1
        assert harness.toolbox.tries(1)[-1][0] == running.tasks[0].run_id

    harness.toolbox.release_all()
    await harness.close()


def describe(content: dict[str, Any]) -> None:
    """Change the description of the last task."""
    content["tasks"][-1]["description"] = "sweep the attic"


def forget(content: dict[str, Any]) -> None:
    """Write the file as it was before the first task began."""
    content["tasks"][0] |= {"status": "pending", "run_id": None, "attempt": 0, "earlier_runs": []}
    describe(content)


@pytest.mark.parametrize("edit", [describe, forget])
async def test_an_edit_while_no_service_runs(place: plan_harness.Place, edit: Callable[[dict[str, Any]], None]) -> None:
    """An edit between a kill and the next start counts, and does not begin a begun task again."""
    harness = await Harness(place).open()
    harness.toolbox.hold(1)
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1))
    await harness.toolbox.begun(1)
    begun = await harness.until(session_id, lambda plan: plan.tasks[0].run_id is not None)
    await harness.crash()
    content = begun.to_json()
    edit(content)
    harness.put(session_id, json.loads(json.dumps(content)))
    harness.toolbox.release(1)
    await harness.restart()
    plan = await harness.until(session_id, lambda plan: plan.status is plans.PlanState.DONE)

    assert plan.tasks[1].description == "sweep the attic"
    assert (plan.tasks[0].run_id, plan.tasks[0].attempt) == (begun.tasks[0].run_id, 1)
    assert len(await harness.runs()) == 2

    await harness.close()


async def test_an_earlier_file_at_a_start(place: plan_harness.Place, caplog: pytest.LogCaptureFixture) -> None:
    """If a power cut restores an earlier file, the plan continues as it was, and the log reports it."""
    harness = await Harness(place).open()
    session_id = await harness.create(task("sweep room 1"))
    first = await harness.show(session_id)
    harness.put(session_id, {**first.to_json(), "priority": 3})
    harness.toolbox.hold(1)
    await harness.application.plans.add_task(session_id, task("sweep room 2", 1))
    await harness.application.plans.approve(session_id)
    await harness.application.plans.start(session_id)
    await harness.toolbox.begun(1)
    await harness.until(session_id, lambda plan: plan.tasks[0].run_id is not None)
    await harness.crash()
    harness.put(session_id, first.to_json())
    harness.toolbox.release(1)
    await harness.restart()
    plan = await harness.until(session_id, lambda plan: plan.status is plans.PlanState.DONE)

    assert ([each.attempt for each in plan.tasks], plan.priority) == ([1, 1], 3)
    assert len(await harness.runs()) == 2
    assert f"plan.json of {session_id} held an earlier version of the plan (revision 1)" in caplog.text

    await harness.close()


async def test_a_file_ahead_of_the_journal(place: plan_harness.Place, caplog: pytest.LogCaptureFixture) -> None:
    """A file newer than the journal counts at a start, without its authors, and the log reports the gap."""
    harness = await Harness(place).open()
    session_id = await harness.create(task("sweep room 1"))
    draft = await harness.show(session_id)
    await harness.crash()
    eve = {"name": "Eve", "claimed": True, "via": "local"}
    ahead = dataclasses.replace(draft, status=plans.PlanState.APPROVED, revision=draft.revision + 1, approved_by=eve)
    harness.put(session_id, ahead.to_json())
    await harness.restart()
    plan = await harness.until(session_id, lambda plan: plan.approved_by is None)

    assert plan.status is plans.PlanState.APPROVED
    assert f"plan.json of {session_id} is at revision 2 and the plan's journal only at 1" in caplog.text

    await harness.close()


async def test_a_plan_deleted_and_written_again(place: plan_harness.Place) -> None:
    """A plan that a person writes under the name of a deleted one begins its tasks again."""
    harness = await Harness(place).open()
    written = of_old("by-hand", "running", {**OLD, "status": "pending"})
    found = []
    for _ in range(3):
        harness.put("by-hand", written)
        harness.application.planner.wake("by-hand")
        found.append((await harness.rested("by-hand")).tasks[0])
        await harness.application.plans.delete("by-hand")

    assert [(each.status.value, each.attempt) for each in found] == [("done", 1), ("done", 2), ("done", 3)]
    assert len({each.run_id for each in found}) == 3

    await harness.close()


async def test_a_number_written_again(place: plan_harness.Place) -> None:
    """A task written by hand under a removed task's number gets its own run, and the service gives new numbers."""
    harness = await Harness(place).open()
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2"))
    done = await harness.rested(session_id)
    harness.put(session_id, dataclasses.replace(done, tasks=done.tasks[:1]).to_json())
    added = (await harness.application.plans.add_task(session_id, task("sweep room 3"))).plan
    again = dataclasses.replace(given.task(2), recipe_id="sweep", description="sweep room 4")
    harness.put(session_id, dataclasses.replace(added, tasks=(*added.tasks, again)).to_json())
    await harness.application.plans.start(session_id)
    plan = await harness.rested(session_id)

    assert [(each.id, each.status.value, each.attempt) for each in plan.tasks] == [
        (1, "done", 1),
        (3, "done", 1),
        (2, "done", 2),
    ]
    assert len(await harness.runs()) == 4

    await harness.close()


async def test_the_run_of_a_plan_does_not_count_as_a_run(harness: Harness, tmp_path: Path) -> None:
    """The run of a plan is not listed, counted or controlled as a run, and takes no capacity."""
    session_id = await harness.create(task("sweep room 1"))
    await pools.idle()
    status = harness.application.engine.status()

    assert await harness.runs() == []
    assert sum((await harness.application.health.census()).values()) == 0
    assert (status.running, status.queued, status.idle) == (0, 0, 0)
    for order in (harness.application.runs.cancel, harness.application.runs.pause, harness.application.runs.delete):
        with pytest.raises(errors.NotFound):
            await order(session_id)


async def test_a_further_run_knows_the_earlier_ones(place: plan_harness.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a full journal, an old file is still not an edit, and a reused number still gets its own run."""
    monkeypatch.setattr(driver, "MOST_INPUTS", 6)
    harness = await Harness(place).open()
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2"))
    done = await harness.rested(session_id)
    harness.put(session_id, dataclasses.replace(done, tasks=done.tasks[:1]).to_json())
    for number in range(8):
        await harness.application.plans.edit(session_id, review=("on", "off")[number % 2])
    harness.put(session_id, done.to_json())
    shown = await harness.application.plans.edit(session_id, review="on")

    assert (await harness.store.summary(session_id)).completed_at
    assert [each.id for each in shown.tasks] == [1]

    again = dataclasses.replace(given.task(2), recipe_id="sweep", description="sweep room 4")
    harness.put(session_id, dataclasses.replace(shown, tasks=(*shown.tasks, again)).to_json())
    await harness.application.plans.start(session_id)

    assert [each.attempt for each in (await harness.rested(session_id)).tasks] == [1, 2]

    await harness.close()


async def test_an_edit_by_hand_counts_as_a_change(harness: Harness) -> None:
    """A caller who read the plan before an edit of its file has another revision, even if the file kept the number."""
    session_id = await harness.create(task("sweep room 1"))
    content = (await harness.show(session_id)).to_json()
    content["tasks"][0]["description"] = "sweep the attic"
    harness.put(session_id, content)
    with pytest.raises(errors.Conflict) as refused:
        await harness.application.plans.approve(session_id, 1)
    plan = await harness.show(session_id)
    harness.put(session_id, {**content, "tasks": [{**content["tasks"][0], "description": "sweep room 1"}]})
    undone = await harness.application.plans.approve(session_id)

    assert refused.value.code == "plan_changed"
    assert (plan.revision, plan.tasks[0].description) == (2, "sweep the attic")
    assert (undone.revision, undone.tasks[0].description) == (4, "sweep room 1")


async def test_an_old_file_after_a_full_journal_is_not_an_edit(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old file written back after a full journal has ended is not taken for an edit."""
    monkeypatch.setattr(driver, "MOST_INPUTS", 3)
    session_id = await harness.create(task("sweep room 1"))
    draft = await harness.show(session_id)
    await harness.application.plans.approve(session_id)
    harness.probes.at("run.after_ended", 1, lambda: harness.put(session_id, draft.to_json()))
    for review in ("off", "on", "off"):
        plan = await harness.application.plans.edit(session_id, review=review)

    assert (await harness.store.summary(session_id)).completed_at
    assert (plan.status, plan.review) == (plans.PlanState.APPROVED, "off")
