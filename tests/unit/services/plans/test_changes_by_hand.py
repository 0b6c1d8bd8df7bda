"""What a person writes into the file of a plan while a change of it is under way: nobody writes over it unread."""

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
"""Moments of the making of a run, between the plan that says so and the plan that names it."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> plan_harness.Place:
    """Return a project for all desks."""
    return plan_harness.Place(tmp_path_factory.mktemp("place"))


def meddle(
    harness: plan_harness.Harness, session_id: str, change: Callable[[dict[str, Any]], None]
) -> Callable[[], None]:
    """Return what changes the file of a plan as a person does."""

    def act() -> None:
        content = json.loads(harness.store.disk.read(f"sessions/{session_id}/plan.json"))
        change(content)
        harness.put(session_id, content)

    return act


def at_next(harness: plan_harness.Harness, point: str, act: Callable[[], None]) -> None:
    """Do something at the next passing of a point."""
    harness.probes.at(point, harness.probes.count(point) + 1, act)


def mark(content: dict[str, Any]) -> None:
    """Write something that is not ours."""
    content["mood"] = "good"


def describe(content: dict[str, Any]) -> None:
    """Change what the last task is to do."""
    content["tasks"][-1]["description"] = "sweep the attic"


@pytest.mark.parametrize("point", POINTS)
async def test_a_persons_change_builds_on_what_another_one_wrote(harness: plan_harness.Harness, point: str) -> None:
    """A request whose plan is changed by hand while it is made is made again, on the plan as it is then."""
    session_id = await harness.create(task("sweep room 1"), task("sweep room 2"))
    at_next(harness, point, meddle(harness, session_id, describe))
    changed = await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(dod="it shines"))

    assert (changed.tasks[0].dod, changed.tasks[1].description) == ("it shines", "sweep the attic")
    assert await harness.show(session_id) == changed
    assert changed.revision == 3


@pytest.mark.parametrize("point", POINTS)
async def test_an_order_that_is_journalled_counts(harness: plan_harness.Harness, point: str) -> None:
    """An edit that comes when an order's line is written, and its file is not, is merged; both count."""
    session_id = await harness.create(task("sweep room 1"))
    at_next(harness, point, meddle(harness, session_id, lambda content: content.update(revision=7)))
    changed = await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(dod="it shines"), revision=1)

    assert (changed.revision, changed.tasks[0].dod) == (8, "it shines")
    assert await harness.show(session_id) == changed


async def test_who_has_seen_another_revision_is_told(harness: plan_harness.Harness) -> None:
    """A request that names a revision is refused where the file has come to say another one before."""
    session_id = await harness.create(task("sweep room 1"))
    meddle(harness, session_id, lambda content: content.update(revision=7))()
    with pytest.raises(errors.Conflict) as refused:
        await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(dod="it shines"), revision=1)

    assert (refused.value.code, refused.value.detail["plan"]["revision"]) == ("plan_changed", 7)
    assert (await harness.show(session_id)).tasks[0].dod == ""


@pytest.mark.parametrize("point", POINTS)
async def test_a_plan_that_goes_meanwhile_does_not_come_back(harness: plan_harness.Harness, point: str) -> None:
    """A request whose plan is removed by hand while it is made finds no plan, and leaves none."""
    session_id = await harness.create(task("sweep room 1"))
    at_next(harness, point, lambda: harness.store.disk.remove(f"sessions/{session_id}/plan.json"))
    with pytest.raises(errors.NotFound) as refused:
        await harness.application.plans.approve(session_id)

    assert refused.value.code == "plan_not_found"
    assert not harness.store.disk.has_file(f"sessions/{session_id}/plan.json")


@pytest.mark.parametrize("point", POINTS)
async def test_a_retry_sends_its_run_on_once(harness: plan_harness.Harness, point: str) -> None:
    """A retry whose plan is changed by hand while it is made has sent the run on, once, and the plan goes on."""
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
async def test_the_planner_goes_on_with_what_a_person_wrote(
    harness: plan_harness.Harness, point: str, nth: int
) -> None:
    """At any write of the planner, and while runs are made: what a person wrote counts, no run is made twice."""
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
    """A task whose words are changed by hand while its run is made has that run, which does what they said before."""
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
    """Whoever writes that the plan is paused while a run of it is made has it paused; that run comes to its end."""
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
    """A file that is broken while a run is made is not made whole by the note of it; put right, it goes on unasked."""
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
    assert ["not gone on with" in record.getMessage() for record in caplog.records].count(True) == 1

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
    """A plan that is changed by hand while its chief is asked, or heard, keeps what was written, and the one run."""
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
    """A plan that was edited or written by hand continues without an order, once a caller looks at it."""
    session_id = await harness.create(task("sweep room 1"))
    await harness.application.plans.approve(session_id)
    meddle(harness, session_id, lambda content: content.update(status="running"))()
    written = {"session_id": "by-hand", "status": "running", "tasks": [{"id": 1, "description": "sweep room 2"}]}
    harness.put("by-hand", written)
    for each in (session_id, "by-hand"):
        plan = await harness.until(each, lambda plan: plan.status is plans.PlanState.DONE)

        assert plan.tasks[0].run_id is not None
