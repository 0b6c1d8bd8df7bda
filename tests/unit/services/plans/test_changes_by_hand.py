"""Edits of a plan's file by a person during a change of the plan: no process overwrites them unread."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app import clock, errors
from app.domain import plans
from app.services.plans import plan_inputs, requests
from tests.unit.services.plans import plan_harness
from tests.unit.services.plans.plan_harness import task
from tests.unit.worker import pools

POINTS = ("storage.plan.before_write", "storage.plan.before_rename")
MAKING = ("storage.create.before_start", "storage.create.before_rename", "pool.queued")
"""Points of a run's creation, between the plan with the begun task and the plan that names the run."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> plan_harness.Place:
    """Return a project for all harnesses."""
    return plan_harness.Place(tmp_path_factory.mktemp("place"))


def meddle(
    harness: plan_harness.Harness, session_id: str, change: Callable[[dict[str, Any]], None]
) -> Callable[[], None]:
    """Return a function that changes the file of a plan as a person does."""

    def act() -> None:
        content = json.loads(harness.store.disk.read(f"sessions/{session_id}/plan.json"))
        change(content)
        harness.put(session_id, content)

    return act


def at_next(harness: plan_harness.Harness, point: str, act: Callable[[], None]) -> None:
    """Call a function at the next passing of a point."""
    harness.probes.at(point, harness.probes.count(point) + 1, act)


def mark(content: dict[str, Any]) -> None:
    """Write a field that plans do not have."""
    content["mood"] = "good"


def describe(content: dict[str, Any]) -> None:
    """Change the description of the last task."""
    content["tasks"][-1]["description"] = "sweep the attic"


@pytest.mark.parametrize("point", POINTS)
async def test_a_request_is_made_again_on_an_edited_plan(harness: plan_harness.Harness, point: str) -> None:
    """A request whose plan is edited by hand meanwhile is made again on the edited plan."""
    session_id = await harness.create(task("sweep room 1"), task("sweep room 2"))
    at_next(harness, point, meddle(harness, session_id, describe))
    changed = await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(dod="it shines"))

    assert (changed.tasks[0].dod, changed.tasks[1].description) == ("it shines", "sweep the attic")
    assert await harness.show(session_id) == changed
    assert changed.revision == 3


@pytest.mark.parametrize("point", POINTS)
async def test_an_order_that_is_journalled_counts(harness: plan_harness.Harness, point: str) -> None:
    """An edit made while an order's journal line is written, but its file is not, is merged with the order."""
    session_id = await harness.create(task("sweep room 1"))
    at_next(harness, point, meddle(harness, session_id, lambda content: content.update(revision=7)))
    changed = await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(dod="it shines"), revision=1)

    assert (changed.revision, changed.tasks[0].dod) == (8, "it shines")
    assert await harness.show(session_id) == changed


async def test_a_request_with_an_outdated_revision_is_refused(harness: plan_harness.Harness) -> None:
    """A request with a revision is refused if the file has another one by then."""
    session_id = await harness.create(task("sweep room 1"))
    meddle(harness, session_id, lambda content: content.update(revision=7))()
    with pytest.raises(errors.Conflict) as refused:
        await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(dod="it shines"), revision=1)

    assert (refused.value.code, refused.value.detail["plan"]["revision"]) == ("plan_changed", 7)
    assert (await harness.show(session_id)).tasks[0].dod == ""


@pytest.mark.parametrize("point", POINTS)
async def test_a_plan_that_goes_meanwhile_does_not_come_back(harness: plan_harness.Harness, point: str) -> None:
    """A request whose plan's file is removed meanwhile finds no plan and leaves none."""
    session_id = await harness.create(task("sweep room 1"))
    at_next(harness, point, lambda: harness.store.disk.remove(f"sessions/{session_id}/plan.json"))
    with pytest.raises(errors.NotFound) as refused:
        await harness.application.plans.approve(session_id)

    assert refused.value.code == "plan_not_found"
    assert not harness.store.disk.has_file(f"sessions/{session_id}/plan.json")


@pytest.mark.parametrize("point", POINTS)
async def test_a_retry_sends_its_run_on_once(harness: plan_harness.Harness, point: str) -> None:
    """A retry whose plan is edited by hand meanwhile continues the run once, and the plan continues."""
    harness.toolbox.fail(1)
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1))
    failed = await harness.rested(session_id)
    harness.toolbox.mend(1)
    harness.toolbox.hold(1)
    at_next(harness, point, meddle(harness, session_id, describe))
    retried = await harness.application.plans.retry(session_id, 1)
    harness.toolbox.release(1)
    plan = await harness.rested(session_id)

    assert plan_harness.stand(retried) == {"t1": "running", "t2": "blocked"}
    assert (retried.status, plan.status) == (plans.PlanState.RUNNING, plans.PlanState.DONE)
    assert plan.tasks[0].run_id == failed.tasks[0].run_id
    assert [attempt for _, attempt in harness.toolbox.tries(1)] == [1, 2]
    assert plan.tasks[1].description == "sweep the attic"


@pytest.mark.parametrize("point", [*POINTS, *MAKING])
@pytest.mark.parametrize("nth", [1, 2])
async def test_an_edit_by_hand_counts_at_any_planner_write(harness: plan_harness.Harness, point: str, nth: int) -> None:
    """An edit by hand at any write of the planner or creation of a run counts, and no run is created twice."""
    session_id = await harness.create(task("sweep room 1"), task("sweep room 2", 1), task("sweep room 3", 2))
    await harness.application.plans.approve(session_id)

    def change(content: dict[str, Any]) -> None:
        mark(content)
        describe(content)

    # The first write is that of the start itself.
    passing = harness.probes.count(point) + nth + (point in POINTS)
    harness.probes.at(point, passing, meddle(harness, session_id, change))
    await harness.application.plans.start(session_id)
    plan = await harness.rested(session_id)

    assert plan.status is plans.PlanState.DONE
    assert (plan.to_json()["mood"], plan.tasks[-1].description) == ("good", "sweep the attic")
    assert [each.attempt for each in plan.tasks] == [1, 1, 1]
    assert {each.run_id for each in plan.tasks} == set(await harness.run_ids())
    assert [said for number, said, _ in harness.toolbox.asked] == ["sweep room 1", "sweep room 2", "sweep the attic"]


@pytest.mark.parametrize("point", MAKING)
async def test_a_task_that_is_changed_while_it_is_begun_has_its_run(harness: plan_harness.Harness, point: str) -> None:
    """A task that is edited by hand while its run is created keeps that run with the old description."""
    session_id = await harness.create(task("sweep room 1"))
    await harness.application.plans.approve(session_id)
    at_next(harness, point, meddle(harness, session_id, describe))
    await harness.application.plans.start(session_id)
    plan = await harness.rested(session_id)

    assert (plan.status, plan.tasks[0].description) == (plans.PlanState.DONE, "sweep the attic")
    assert [plan.tasks[0].run_id] == await harness.run_ids()
    assert [said for _, said, _ in harness.toolbox.asked] == ["sweep room 1"]


@pytest.mark.parametrize("point", MAKING)
async def test_a_pause_by_hand_is_kept(harness: plan_harness.Harness, point: str) -> None:
    """A pause by hand while a run is created pauses the plan, and the run ends normally."""
    session_id = await harness.create(task("sweep room 1"), task("sweep room 2", 1))
    await harness.application.plans.approve(session_id)
    at_next(harness, point, meddle(harness, session_id, lambda content: content.update(status="paused")))
    await harness.application.plans.start(session_id)
    plan = await harness.comes_to(session_id, t1="done")

    assert (plan.status, plan.tasks[1].status) == (plans.PlanState.PAUSED, plans.TaskState.PENDING)
    assert [plan.tasks[0].run_id] == await harness.run_ids()


@pytest.mark.parametrize("point", MAKING)
async def test_a_file_that_breaks_meanwhile_stays(
    place: plan_harness.Place, caplog: pytest.LogCaptureFixture, point: str
) -> None:
    """A file broken while a run is created stays broken; once repaired, the plan continues without an order."""
    time = clock.FakeClock()
    harness = await plan_harness.Harness(place, time=time).open()
    session_id = await harness.create(task("sweep room 1"), task("sweep room 2", 1))
    await harness.application.plans.approve(session_id)
    path, whole = f"sessions/{session_id}/plan.json", list[bytes]()

    def damage() -> None:
        whole.append(harness.store.disk.read(path))
        harness.store.disk.write(path, b"{", sync=True)

    at_next(harness, point, damage)
    await harness.application.plans.start(session_id)
    with pytest.raises(errors.Conflict) as told:
        await harness.rested(session_id)
    for _ in range(5):
        await pools.idle()
        time.advance(plan_inputs.LONGEST_PAUSE_SECONDS)

    assert told.value.code == "plan_damaged"
    assert harness.store.disk.read(path) == b"{"
    assert ["not continued until" in record.getMessage() for record in caplog.records].count(True) == 1

    harness.store.disk.write(path, whole[0], sync=True)

    def is_done(plan: plans.Plan) -> bool:
        time.advance(1)
        return plan.status is plans.PlanState.DONE

    await harness.until(session_id, is_done)

    assert await harness.runs() == ["done", "done"]

    await harness.close()


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", POINTS)
async def test_a_chief_is_asked_once(tmp_path: Path, point: str, nth: int) -> None:
    """A plan edited by hand while its chief is asked or read keeps the edit and the one run of the chief."""
    place = plan_harness.Place(tmp_path)
    place.project.say("chief*", text=plan_harness.says({"id": 1, "description": "sweep room 1"}))
    harness = await plan_harness.Harness(place).open()
    # The first write is that of the plan itself.
    passing, session_ids = harness.probes.count(point) + 1 + nth, list[str]()

    def change(content: dict[str, Any]) -> None:
        content |= {"mood": "good", "intent": "tidy up, please"}

    def act() -> None:
        (name,) = [name for name in harness.store.disk.names("sessions") if name.startswith("sp_")]
        meddle(harness, name, change)()
        session_ids.append(name)

    harness.probes.at(point, passing, act)
    session_id = (await harness.application.plans.create(plan_harness.intended("tidy up"))).plan.session_id
    plan = await harness.until(session_id, lambda plan: bool(plan.tasks))

    assert session_ids == [session_id]
    assert (plan.to_json()["mood"], plan.status) == ("good", plans.PlanState.DRAFT)
    assert [plan.chief_run_id] == await harness.run_ids()

    await harness.close()


async def test_an_edit_is_taken_as_soon_as_the_plan_is_shown(harness: plan_harness.Harness) -> None:
    """A plan that was edited or written by hand continues without an order once a caller reads it."""
    session_id = await harness.create(task("sweep room 1"))
    await harness.application.plans.approve(session_id)
    meddle(harness, session_id, lambda content: content.update(status="running"))()
    written = {"session_id": "by-hand", "status": "running", "tasks": [{"id": 1, "description": "sweep room 2"}]}
    harness.put("by-hand", written)
    for each in (session_id, "by-hand"):
        plan = await harness.until(each, lambda plan: plan.status is plans.PlanState.DONE)

        assert plan.tasks[0].run_id is not None
