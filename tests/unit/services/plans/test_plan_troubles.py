"""Trouble of plans: a full disk, runs that cannot be made or read, and what is written down about it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from app import clock, errors
from app.domain import plans
from app.services.plans import planner, requests
from app.storage import memory_store
from tests.unit.services.plans import desks
from tests.unit.services.plans.desks import task
from tests.unit.worker import failing, pools


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> desks.Place:
    """Return a project for all desks."""
    return desks.Place(tmp_path_factory.mktemp("place"))


@pytest.fixture
async def desk(place: desks.Place) -> AsyncIterator[desks.Desk]:
    """Return an open desk whose disk can be full, and whose time stands still."""
    made = desks.Desk(place, time=clock.FakeClock())
    made.store = memory_store.MemoryStore(clock=made.clock, probes=made.probes, disk=failing.FullDisk())
    opened = await made.open()
    yield opened
    await opened.close()


def disk_of(desk: desks.Desk) -> failing.FullDisk:
    """Return the disk of a desk."""
    assert isinstance(desk.store.disk, failing.FullDisk)
    return desk.store.disk


def advance(desk: desks.Desk, seconds: float) -> None:
    """Move the time."""
    assert isinstance(desk.clock, clock.FakeClock)
    desk.clock.advance(seconds)


async def test_a_change_that_cannot_be_written_changes_nothing(desk: desks.Desk) -> None:
    """With a full disk every change is refused as such, the plan stays as it was, and with room it is made."""
    session_id = await desk.create(task("sweep room 1"))
    before = await desk.show(session_id)
    disk_of(desk).full = True
    for order in (
        desk.room.plans.approve(session_id),
        desk.room.plans.edit_task(session_id, 1, requests.TaskEdit(dod="it shines")),
        desk.room.plans.create(requests.NewPlan(tasks=(task("sweep room 2"),))),
    ):
        with pytest.raises(errors.NoRoom):
            await order

    assert await desk.show(session_id) == before

    disk_of(desk).full = False
    await desk.room.plans.approve(session_id)

    assert (await desk.show(session_id)).revision == before.revision + 1


async def test_a_plan_goes_on_when_there_is_room_again(desk: desks.Desk) -> None:
    """A planner that cannot write waits, without hurry and without end, and goes on with one run per task."""
    desk.toolbox.hold(1)
    session_id = await desk.started(task("sweep room 1"), task("sweep room 2", 1))
    await desk.toolbox.begun(1)
    disk_of(desk).full = True
    desk.toolbox.release(1)
    for _ in range(8):
        await pools.idle()
        advance(desk, planner.LONGEST_PAUSE_SECONDS)
    await pools.idle()

    assert len(await desk.runs()) == 1

    disk_of(desk).full = False
    plan = await ended(desk, session_id)

    assert plan.status is plans.PlanState.DONE
    assert sorted(await desk.runs()) == ["done", "done"]


async def test_a_plan_that_could_not_be_begun_is_begun_with_room(desk: desks.Desk) -> None:
    """A task that is written down as begun, and whose run finds no room, keeps its place and gets its run later."""
    session_id = await desk.create(task("sweep room 1"))
    await desk.room.plans.approve(session_id)
    desk.probes.at(
        "storage.create.before_folder", desk.probes.count("storage.create.before_folder") + 1, lambda: fill(desk)
    )
    await desk.room.plans.start(session_id)
    await desks.until(lambda: disk_of(desk).full)
    await pools.idle()
    waiting = await desk.task(session_id, 1)

    assert (waiting.status, waiting.run_id) == (plans.TaskState.RUNNING, None)

    disk_of(desk).full = False
    plan = await ended(desk, session_id)

    assert (plan.status, plan.tasks[0].attempt) == (plans.PlanState.DONE, 1)
    assert await desk.runs() == ["done"]


async def test_the_pauses_grow_to_a_limit(desk: desks.Desk, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot go on is tried again after one second, two, four, and then every half minute; each try is logged."""
    desk.toolbox.hold(1)
    session_id = await desk.started(task("sweep room 1"), task("sweep room 2", 1))
    await desk.toolbox.begun(1)
    broken = errors.StorageFault("it cannot be read now")
    find = desk.store.plans.get

    async def get(wanted: str) -> plans.Plan | None:
        raise broken

    desk.store.plans.get = get  # type: ignore[method-assign, assignment]
    desk.room.planner.look_at(session_id)
    with caplog.at_level(logging.WARNING, "app.services.plans.planner"):
        for _ in range(100):
            await pools.idle()
            advance(desk, 1)
    desk.store.plans.get = find  # type: ignore[method-assign]
    desk.toolbox.release(1)

    assert len(caplog.records) == 1 + len([1, 2, 4, 8, 16, 30, 30])
    assert (await ended(desk, session_id)).status is plans.PlanState.DONE


async def test_a_task_whose_run_is_refused_fails(desk: desks.Desk) -> None:
    """A recipe that has gone since fails its task with the reason, opens an issue, and the rest of the plan goes on."""
    schema = {"type": "object", "properties": {}}
    desk.place.add_recipe({"recipe_id": "melt", "label": "Melt", "task_patterns": ["melt "], "args_schema": schema})
    session_id = await desk.create(task("melt it"), task("sweep room 2", 1), task("sweep room 3"))
    desk.place.remove_recipe("melt")
    await desk.room.plans.approve(session_id)
    await desk.room.plans.start(session_id)
    plan = await desk.rested(session_id)
    (issue,) = await desk.issues()

    assert desks.stand(plan) == {"t1": "failed", "t2": "blocked", "t3": "done"}
    assert (plan.tasks[0].error or {})["code"] == "unknown_recipe"
    assert (plan.tasks[0].run_id, issue.run_id, issue.kind) == (None, None, "task")

    desk.place.add_recipe({"recipe_id": "melt", "label": "Melt", "task_patterns": ["melt "], "args_schema": schema})
    await desk.room.plans.retry(session_id, 1)
    done = await desk.rested(session_id)

    assert (done.status, done.tasks[0].attempt) == (plans.PlanState.DONE, 2)


async def test_a_damaged_run_fails_its_task(desk: desks.Desk) -> None:
    """A task whose run cannot be read any more has failed with that; a retry makes another run."""
    desk.toolbox.fail(1)
    session_id = await desk.started(task("sweep room 1"))
    failed = await desk.rested(session_id)
    run_id = str(failed.tasks[0].run_id)
    content = bytearray(desk.store.disk.read(f"runs/{run_id}/steps.jsonl"))
    content[20] ^= 1
    desk.store.disk.write(f"runs/{run_id}/steps.jsonl", bytes(content), sync=True)
    desk.toolbox.mend(1)
    await desk.room.plans.retry(session_id, 1)
    plan = await desk.rested(session_id)

    assert plan.status is plans.PlanState.DONE
    assert (plan.tasks[0].attempt, plan.tasks[0].earlier_runs) == (2, (run_id,))


def fill(desk: desks.Desk) -> None:
    """Use up all room."""
    disk_of(desk).full = True


async def ended(desk: desks.Desk, session_id: str) -> plans.Plan:
    """Move the time on until a plan has ended."""
    for _ in range(200):
        plan = await desk.show(session_id)
        if plan.status in (plans.PlanState.DONE, plans.PlanState.FAILED):
            return plan
        await pools.idle()
        advance(desk, 1)
    raise AssertionError(plan)
