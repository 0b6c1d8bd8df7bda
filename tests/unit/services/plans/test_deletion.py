"""Plans that are deleted: only where nothing is under way, once and for good, and nothing of them comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app import errors
from app.domain import plans
from app.engine import stores
from app.services.plans import requests
from tests.unit.services.plans import desks
from tests.unit.services.plans.desks import task

CHIEF_SAYS = desks.says({"id": 1, "description": "sweep room 1"})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> desks.Place:
    """Return a project for all desks."""
    made = desks.Place(tmp_path_factory.mktemp("place"))
    made.project.say("chief*", text=CHIEF_SAYS)
    return made


async def gone(desk: desks.Desk, session_id: str) -> bool:
    """Tell whether a plan is neither shown nor listed."""
    listed, _ = await desk.room.plans.page(plans.PlanQuery())
    with pytest.raises(errors.NotFound):
        await desk.show(session_id)
    return session_id not in [each.session_id for each in listed]


async def refused(desk: desks.Desk, session_id: str) -> errors.WrongState:
    """Try to delete a plan, and return why it cannot be."""
    before = await desk.show(session_id)
    with pytest.raises(errors.WrongState) as told:
        await desk.room.plans.delete(session_id)

    assert await desk.show(session_id) == before
    return told.value


async def test_a_plan_that_rests_is_deleted(desk: desks.Desk) -> None:
    """Drafts, approved, paused, done and failed plans can be deleted; runs, their receipts and issues stay."""
    desk.toolbox.fail(2)
    approved, paused = await desk.create(task("sweep room 1")), await desk.started(task("xyzzy"))
    await desk.room.plans.approve(approved)
    await desk.room.plans.pause(paused)
    done = await desk.started(task("sweep room 1"))
    failed = await desk.started(task("sweep room 1"), task("sweep room 2"))
    for session_id in (done, failed):
        await desk.rested(session_id)
    left = sorted(await desk.run_ids()), await desk.issues()
    for session_id in (await desk.create(task("sweep room 1")), approved, paused, done, failed):
        await desk.room.plans.delete(session_id)

        assert await gone(desk, session_id)

    assert (sorted(await desk.run_ids()), await desk.issues()) == left
    assert len(await desk.room.runs.list_runs(stores.RunQuery(session_id=failed))) == 2
    assert len(left[1]) == 1


async def test_a_plan_at_work_is_not_deleted(desk: desks.Desk) -> None:
    """While it runs, even if only an answer is missing, while a run of it goes on, or the chief is at work: not."""
    waiting = await desk.started(task("xyzzy"))
    desk.toolbox.hold(1)
    busy = await desk.started(task("sweep room 1"))
    await desk.toolbox.begun(1)
    await desk.room.plans.pause(busy)
    run_id = (await desk.task(busy, 1)).run_id
    told = await refused(desk, busy)

    assert "pause it first" in (await refused(desk, waiting)).message
    assert str(run_id) in told.message
    assert told.detail["task"] == 1

    desk.toolbox.release(1)
    await desk.comes_to(busy, t1="done")
    await desk.room.plans.delete(busy)
    await desk.room.plans.pause(waiting)
    await desk.room.plans.delete(waiting)


async def test_a_plan_whose_chief_is_at_work_is_not_deleted(desk: desks.Desk) -> None:
    """The chief's run must have ended before its plan is deleted."""
    created = await desk.room.plans.create(desks.intended("tidy up"))
    told = await refused(desk, created.plan.session_id)
    await desk.rested(created.plan.session_id)
    await desk.room.plans.delete(created.plan.session_id)

    assert "the chief is at work" in told.message
    assert await gone(desk, created.plan.session_id)


async def test_a_run_that_was_sent_on_keeps_its_plan(desk: desks.Desk) -> None:
    """A failed plan whose run somebody has sent on by hand is at work, whatever its file says."""
    desk.toolbox.fail(1)
    session_id = await desk.started(task("sweep room 1"))
    plan = await desk.rested(session_id)
    desk.toolbox.mend(1)
    desk.toolbox.hold(1)
    await desk.resume(str(plan.tasks[0].run_id))
    with pytest.raises(errors.WrongState):
        await desk.room.plans.delete(session_id)
    desk.toolbox.release(1)

    assert (await desk.until(session_id, lambda plan: plan.status is plans.PlanState.DONE)).tasks[0].attempt == 1


async def test_another_change_goes_first(desk: desks.Desk) -> None:
    """A deletion of something older than the plan is refused with the plan as it is."""
    session_id = await desk.create(task("sweep room 1"))
    await desk.room.plans.approve(session_id)
    with pytest.raises(errors.Conflict) as told:
        await desk.room.plans.delete(session_id, 1)
    await desk.room.plans.delete(session_id, 2)

    assert told.value.code == "plan_changed"
    with pytest.raises(errors.NotFound):
        await desk.room.plans.delete(session_id)


async def test_a_run_of_a_deleted_plan_can_be_sent_on(desk: desks.Desk) -> None:
    """A failed run whose plan is gone goes on to its end as any other, and makes no plan anew."""
    desk.toolbox.fail(1)
    session_id = await desk.started(task("sweep room 1"))
    run_id = str((await desk.rested(session_id)).tasks[0].run_id)
    await desk.room.plans.delete(session_id)
    desk.toolbox.mend(1)
    await desk.resume(run_id)
    await desks.soon(desk.room.engine.ended(run_id))

    assert await desk.runs() == ["done"]
    assert await gone(desk, session_id)


async def test_the_key_of_a_deleted_plan_makes_another_one(desk: desks.Desk) -> None:
    """A request under the key of a deleted plan makes a new plan, which takes over no run of the old one."""
    new = requests.NewPlan(tasks=(task("sweep room 1"),), idempotency_key="k")
    made = []
    for _ in range(3):
        created = await desk.room.plans.create(new)
        session_id = created.plan.session_id
        await desk.room.plans.approve(session_id)
        await desk.room.plans.start(session_id)
        made.append((session_id, (await desk.rested(session_id)).tasks[0].run_id, created.existed))
        await desk.room.plans.delete(session_id)
    await desk.room.runs.delete(str(made[0][1]))
    last = await desk.room.plans.create(new)
    again = await desk.room.plans.create(new)

    assert [existed for _, _, existed in made] == [False] * 3
    assert len({session_id for session_id, _, _ in made} | {last.plan.session_id}) == 4
    assert len({run_id for _, run_id, _ in made}) == 3
    assert (again.existed, again.plan.session_id) == (True, last.plan.session_id)


@pytest.mark.parametrize("point", ["before_marker", "before_remove", "after_remove"])
async def test_a_deletion_that_is_cut_off_is_asked_again(place: desks.Place, tmp_path: Path, point: str) -> None:
    """Where the process dies over a deletion the plan is whole or gone, and asking again leaves it gone."""
    desk = await desks.Desk(place).open()
    session_id = await desk.create(task("sweep room 1"))
    left = desk.crash_when(f"storage.plan.{point}", 1)
    deleting = asyncio.create_task(desk.room.plans.delete(session_id))
    await desk.bury(left)
    await desks.over(deleting)
    await desk.restart()
    if point != "after_remove":
        assert (await desk.show(session_id)).status is plans.PlanState.DRAFT

        await desk.room.plans.delete(session_id)

    assert await gone(desk, session_id)

    await desk.close()
