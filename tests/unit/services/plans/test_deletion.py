"""Deletion of plans: only at rest, permanently, and without remains."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app import errors
from app.domain import audit, plans
from app.engine import stores
from app.services.plans import requests
from tests.unit.services.plans import plan_harness
from tests.unit.services.plans.plan_harness import task

CHIEF_SAYS = plan_harness.says({"id": 1, "description": "sweep room 1"})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> plan_harness.Place:
    """Return a project for all harnesses."""
    made = plan_harness.Place(tmp_path_factory.mktemp("place"))
    made.project.say("chief*", text=CHIEF_SAYS)
    return made


async def gone(harness: plan_harness.Harness, session_id: str) -> bool:
    """Return whether a plan is neither shown nor listed."""
    listed, _ = await harness.application.plans.page(plans.PlanQuery())
    with pytest.raises(errors.NotFound):
        await harness.show(session_id)
    return session_id not in [each.session_id for each in listed]


async def refused(harness: plan_harness.Harness, session_id: str) -> errors.WrongState:
    """Try to delete a plan, and return the refusal."""
    before = await harness.show(session_id)
    with pytest.raises(errors.WrongState) as told:
        await harness.application.plans.delete(session_id)

    assert await harness.show(session_id) == before
    return told.value


async def test_a_plan_that_rests_is_deleted(harness: plan_harness.Harness) -> None:
    """A draft, approved, paused, done or failed plan can be deleted; its runs, receipts and issues remain."""
    harness.toolbox.fail(2)
    approved, paused = await harness.create(task("sweep room 1")), await harness.started(task("xyzzy"))
    await harness.application.plans.approve(approved)
    await harness.application.plans.pause(paused)
    done = await harness.started(task("sweep room 1"))
    failed = await harness.started(task("sweep room 1"), task("sweep room 2"))
    for session_id in (done, failed):
        await harness.rested(session_id)
    left = sorted(await harness.run_ids()), await harness.issues()
    for session_id in (await harness.create(task("sweep room 1")), approved, paused, done, failed):
        await harness.application.plans.delete(session_id)

        assert await gone(harness, session_id)

    assert (sorted(await harness.run_ids()), await harness.issues()) == left
    assert len(await harness.application.runs.list_runs(stores.RunQuery(session_id=failed))) == 2
    assert len(left[1]) == 1


async def test_a_plan_at_work_is_not_deleted(harness: plan_harness.Harness) -> None:
    """A plan is not deleted while it runs, even if it only waits for an answer, or while a run of it continues."""
    waiting = await harness.started(task("xyzzy"))
    harness.toolbox.hold(1)
    busy = await harness.started(task("sweep room 1"))
    await harness.toolbox.begun(1)
    run_id = (await harness.comes_to(busy, t1="running")).tasks[0].run_id
    await harness.application.plans.pause(busy)
    told = await refused(harness, busy)

    assert "pause it first" in (await refused(harness, waiting)).message
    assert str(run_id) in told.message
    assert told.detail["task"] == 1

    harness.toolbox.release(1)
    await harness.comes_to(busy, t1="done")
    await harness.application.plans.delete(busy)
    await harness.application.plans.pause(waiting)
    await harness.application.plans.delete(waiting)


async def test_a_plan_whose_chief_is_at_work_is_not_deleted(harness: plan_harness.Harness) -> None:
    """A plan can be deleted only after the chief's run has ended."""
    created = await harness.application.plans.create(plan_harness.intended("tidy up"))
    told = await refused(harness, created.plan.session_id)
    await harness.rested(created.plan.session_id)
    await harness.application.plans.delete(created.plan.session_id)

    assert "the chief is at work" in told.message
    assert await gone(harness, created.plan.session_id)


async def test_a_run_that_was_sent_on_keeps_its_plan(harness: plan_harness.Harness) -> None:
    """A failed plan whose run a person has resumed is not deleted."""
    harness.toolbox.fail(1)
    session_id = await harness.started(task("sweep room 1"))
    plan = await harness.rested(session_id)
    harness.toolbox.mend(1)
    harness.toolbox.hold(1)
    await harness.resume(str(plan.tasks[0].run_id))
    with pytest.raises(errors.WrongState):
        await harness.application.plans.delete(session_id)
    harness.toolbox.release(1)

    assert (await harness.until(session_id, lambda plan: plan.status is plans.PlanState.DONE)).tasks[0].attempt == 1


async def test_another_change_goes_first(harness: plan_harness.Harness) -> None:
    """A deletion with an older revision is refused with `plan_changed`."""
    session_id = await harness.create(task("sweep room 1"))
    await harness.application.plans.approve(session_id)
    with pytest.raises(errors.Conflict) as told:
        await harness.application.plans.delete(session_id, 1)
    await harness.application.plans.delete(session_id, 2)

    assert told.value.code == "plan_changed"
    with pytest.raises(errors.NotFound):
        await harness.application.plans.delete(session_id)


async def test_a_run_of_a_deleted_plan_can_be_sent_on(harness: plan_harness.Harness) -> None:
    """A failed run of a deleted plan can be resumed to its end, and does not create the plan again."""
    harness.toolbox.fail(1)
    session_id = await harness.started(task("sweep room 1"))
    run_id = str((await harness.rested(session_id)).tasks[0].run_id)
    await harness.application.plans.delete(session_id)
    harness.toolbox.mend(1)
    await harness.resume(run_id)
    await plan_harness.soon(harness.application.engine.ended(run_id))

    assert await harness.runs() == ["done"]
    assert await gone(harness, session_id)


async def test_the_key_of_a_deleted_plan_makes_another_one(harness: plan_harness.Harness) -> None:
    """A request with the key of a deleted plan creates a new plan that takes over no run of the old one."""
    new = requests.NewPlan(tasks=(task("sweep room 1"),), idempotency_key="k")
    made = []
    for _ in range(3):
        created = await harness.application.plans.create(new)
        session_id = created.plan.session_id
        await harness.application.plans.approve(session_id)
        await harness.application.plans.start(session_id)
        made.append((session_id, (await harness.rested(session_id)).tasks[0].run_id, created.existed))
        await harness.application.plans.delete(session_id)
    await harness.application.runs.delete(str(made[0][1]))
    last = await harness.application.plans.create(new)
    again = await harness.application.plans.create(new)

    assert [existed for _, _, existed in made] == [False] * 3
    assert len({session_id for session_id, _, _ in made} | {last.plan.session_id}) == 4
    assert len({run_id for _, run_id, _ in made}) == 3
    assert (again.existed, again.plan.session_id) == (True, last.plan.session_id)


@pytest.mark.parametrize("point", ["before_marker", "before_remove", "after_remove"])
async def test_a_deletion_that_is_cut_off_is_asked_again(place: plan_harness.Place, tmp_path: Path, point: str) -> None:
    """After a crash during a deletion the plan is whole or gone, and a repeated deletion removes it."""
    harness = await plan_harness.Harness(place).open()
    session_id = await harness.create(task("sweep room 1"))
    left = harness.crash_when(f"storage.plan.{point}", 1)
    deleting = asyncio.create_task(harness.application.plans.delete(session_id))
    await harness.take_over(left)
    await plan_harness.over(deleting)
    await harness.restart()
    if point != "after_remove":
        assert (await harness.show(session_id)).status is plans.PlanState.DRAFT

        await harness.application.plans.delete(session_id)

    assert await gone(harness, session_id)

    await harness.close()


async def test_a_plan_whose_file_is_gone_leaves_no_run(place: plan_harness.Place) -> None:
    """The run of a plan whose file a person removed ends with the plan's deletion, or at the next start."""
    harness = await plan_harness.Harness(place).open()
    loaded, left = [await harness.create(task("sweep room 1")) for _ in range(2)]
    for session_id in (loaded, left):
        harness.store.disk.remove(f"sessions/{session_id}/plan.json")
    await harness.application.plans.delete(loaded)
    await plan_harness.soon(harness.application.engine.ended(loaded))
    await harness.application.planner.stop()
    await harness.application.plans.delete(left)
    await harness.crash()
    await harness.restart()
    await plan_harness.soon(harness.application.engine.ended(left))
    told, _ = await harness.store.audit.page(audit.AuditQuery(action="plan.deleted"))

    assert {entry.target for entry in told} == {loaded, left}

    await harness.close()
