"""Failures of plans: a full disk, runs that cannot be created or read, and the issues and logs of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from app import clock, errors
from app.domain import audit, plan_events, plans
from app.engine import stores
from app.services.plans import plan_inputs, requests
from app.storage import memory_store
from tests.unit.services.plans import plan_harness
from tests.unit.services.plans.plan_harness import task
from tests.unit.worker import failing, pools


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> plan_harness.Place:
    """Return a project for all harnesses."""
    return plan_harness.Place(tmp_path_factory.mktemp("place"))


@pytest.fixture
async def harness(place: plan_harness.Place) -> AsyncIterator[plan_harness.Harness]:
    """Return an open harness with a disk that can be full, and a clock that the test advances."""
    made = plan_harness.Harness(place, time=clock.FakeClock())
    made.store = memory_store.MemoryStore(clock=made.clock, probes=made.probes, disk=failing.FullDisk())
    opened = await made.open()
    yield opened
    await opened.close()


def disk_of(harness: plan_harness.Harness) -> failing.FullDisk:
    """Return the disk of a harness."""
    assert isinstance(harness.store.disk, failing.FullDisk)
    return harness.store.disk


def advance(harness: plan_harness.Harness, seconds: float) -> None:
    """Advance the time."""
    assert isinstance(harness.clock, clock.FakeClock)
    harness.clock.advance(seconds)


async def test_a_change_that_cannot_be_written_changes_nothing(harness: plan_harness.Harness) -> None:
    """With a full disk every change is refused and the plan stays unchanged; with free space it succeeds."""
    session_id = await harness.create(task("sweep room 1"))
    before = await harness.show(session_id)
    disk_of(harness).full = True
    for order in (
        harness.application.plans.approve(session_id),
        harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(dod="it shines")),
        harness.application.plans.create(requests.NewPlan(tasks=(task("sweep room 2"),))),
    ):
        with pytest.raises(errors.WriteFailed):
            await order

    assert await harness.show(session_id) == before

    disk_of(harness).full = False
    await harness.application.plans.approve(session_id)

    assert (await harness.show(session_id)).revision == before.revision + 1


async def test_a_plan_that_cannot_be_removed_is_refused_and_removed_later(
    harness: plan_harness.Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion that counts is in the audit log, is refused while the disk fails, and is carried out later."""
    session_id = await harness.create(task("sweep room 1"))
    with monkeypatch.context() as failing_disk:
        failing_disk.setattr(harness.application.plans._repository, "try_writing", refuse)
        with pytest.raises(errors.WriteFailed):
            await pools.soon(harness.application.plans.delete(session_id))

    assert await harness.store.audit.page(audit.AuditQuery(action="plan.deleted")) == ([], None)

    with monkeypatch.context() as failing_disk:
        failing_disk.setattr(harness.application.plans._repository, "remove", refuse)
        for _ in range(2):
            with pytest.raises(errors.WriteFailed):
                await pools.soon(harness.application.plans.delete(session_id))
    await pools.soon(harness.application.plans.delete(session_id))

    with pytest.raises(errors.NotFound):
        await harness.show(session_id)

    told, _ = await harness.store.audit.page(audit.AuditQuery(action="plan.deleted"))

    assert [entry.target for entry in told] == [session_id]


async def refuse(session_id: str) -> None:
    """Fail as a broken disk does."""
    raise errors.StorageFault(f"the plan {session_id} cannot be removed")


async def test_a_plan_whose_run_cannot_be_loaded_refuses_orders(
    harness: plan_harness.Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders to a plan whose run cannot be opened are refused, and accepted once it can be."""
    session_id = await harness.create(task("sweep room 1"))
    await harness.crash()
    await harness.restart()
    with monkeypatch.context() as failing_disk:
        failing_disk.setattr(harness.store, "open", refuse_to_open)
        for _ in range(2):
            with pytest.raises(errors.WriteFailed):
                await pools.soon(harness.application.plans.approve(session_id))

    assert (await pools.soon(harness.application.plans.approve(session_id))).status is plans.PlanState.APPROVED


async def refuse_to_open(run_id: str) -> stores.RunLog:
    """Fail as a disk does that refuses a lock file."""
    raise errors.StorageFault(f"the folder of {run_id} cannot be opened")


async def test_a_plan_continues_once_the_disk_has_space(harness: plan_harness.Harness) -> None:
    """A planner that cannot write waits and retries, and continues with one run per task."""
    harness.toolbox.hold(1)
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1))
    await harness.toolbox.begun(1)
    disk_of(harness).full = True
    harness.toolbox.release(1)
    for _ in range(8):
        await pools.idle()
        advance(harness, plan_inputs.LONGEST_PAUSE_SECONDS)
    await pools.idle()

    assert len(await harness.runs()) == 1

    disk_of(harness).full = False
    plan = await ended(harness, session_id)

    assert plan.status is plans.PlanState.DONE
    assert sorted(await harness.runs()) == ["done", "done"]


async def test_a_plan_that_could_not_be_begun_is_begun_with_room(harness: plan_harness.Harness) -> None:
    """A task that was begun but whose run found no disk space keeps its state and gets its run later."""
    session_id = await harness.create(task("sweep room 1"))
    await harness.application.plans.approve(session_id)
    harness.probes.at(
        "storage.create.before_folder", harness.probes.count("storage.create.before_folder") + 1, lambda: fill(harness)
    )
    await harness.application.plans.start(session_id)
    await plan_harness.until(lambda: disk_of(harness).full)
    await pools.idle()
    waiting = await harness.task(session_id, 1)

    assert (waiting.status, waiting.run_id) == (plans.TaskState.RUNNING, None)

    disk_of(harness).full = False
    plan = await ended(harness, session_id)

    assert (plan.status, plan.tasks[0].attempt) == (plans.PlanState.DONE, 1)
    assert await harness.runs() == ["done"]


async def test_the_pauses_grow_to_a_limit(harness: plan_harness.Harness, caplog: pytest.LogCaptureFixture) -> None:
    """A planner that fails retries after one, two and four seconds, then every half minute, and logs each try."""
    harness.toolbox.hold(1)
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1))
    await harness.toolbox.begun(1)
    broken = errors.StorageFault("it cannot be read now")
    find = harness.store.plans.get

    async def get(wanted: str) -> plans.Plan | None:
        raise broken

    harness.store.plans.get = get  # type: ignore[method-assign, assignment]
    harness.application.planner.wake(session_id)
    with caplog.at_level(logging.WARNING, "app.services.plans.plan_inputs"):
        for _ in range(100):
            await pools.idle()
            advance(harness, 1)
    harness.store.plans.get = find  # type: ignore[method-assign]
    harness.toolbox.release(1)

    assert len(caplog.records) == 1 + len([1, 2, 4, 8, 16, 30, 30])
    assert (await ended(harness, session_id)).status is plans.PlanState.DONE


async def test_an_end_that_cannot_be_read_is_awaited_again(
    harness: plan_harness.Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """A storage fault while a run is awaited costs one pause, and the run is awaited again."""
    facts, calls = harness.application.planner.inputs._facts, []
    ending = facts.ending

    async def faulty(run_id: str) -> plan_events.RunFact:
        calls.append(run_id)
        if len(calls) == 1:
            raise errors.Unreadable("it cannot be read now")
        return await ending(run_id)

    facts.ending = faulty  # type: ignore[method-assign]
    harness.toolbox.hold(1)
    with caplog.at_level(logging.WARNING, "app.services.plans.plan_inputs"):
        session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1))
        await harness.toolbox.begun(1)
        await pools.idle()
        advance(harness, plan_inputs.FIRST_PAUSE_SECONDS)
        await pools.idle()
        harness.toolbox.release(1)
        plan = await ended(harness, session_id)

    assert (plan.status, len(caplog.records)) == (plans.PlanState.DONE, 1)
    assert len(calls) == 1 + len(plan.tasks)


async def test_a_task_whose_run_is_refused_fails(harness: plan_harness.Harness) -> None:
    """A removed recipe fails its task with the reason and an issue, and the rest of the plan continues."""
    schema = {"type": "object", "properties": {}}
    harness.place.add_recipe({"recipe_id": "melt", "label": "Melt", "task_patterns": ["melt "], "args_schema": schema})
    session_id = await harness.create(task("melt it"), task("sweep room 2", 1), task("sweep room 3"))
    harness.place.remove_recipe("melt")
    await harness.application.plans.approve(session_id)
    await harness.application.plans.start(session_id)
    plan = await harness.rested(session_id)
    (issue,) = await harness.issues()

    assert plan_harness.stand(plan) == {"t1": "failed", "t2": "blocked", "t3": "done"}
    assert (plan.tasks[0].error or {})["code"] == "unknown_recipe"
    assert (plan.tasks[0].run_id, issue.run_id, issue.kind) == (None, None, "task")

    harness.place.add_recipe({"recipe_id": "melt", "label": "Melt", "task_patterns": ["melt "], "args_schema": schema})
    await harness.application.plans.retry(session_id, 1)
    done = await harness.rested(session_id)

    assert (done.status, done.tasks[0].attempt) == (plans.PlanState.DONE, 2)


async def test_a_damaged_run_fails_its_task(harness: plan_harness.Harness) -> None:
    """A task whose run is damaged has failed, and a retry creates another run."""
    harness.toolbox.fail(1)
    session_id = await harness.started(task("sweep room 1"))
    failed = await harness.rested(session_id)
    run_id = str(failed.tasks[0].run_id)
    content = bytearray(harness.store.disk.read(f"runs/{run_id}/steps.jsonl"))
    content[20] ^= 1
    harness.store.disk.write(f"runs/{run_id}/steps.jsonl", bytes(content), sync=True)
    harness.toolbox.mend(1)
    await harness.application.plans.retry(session_id, 1)
    plan = await harness.rested(session_id)

    assert plan.status is plans.PlanState.DONE
    assert (plan.tasks[0].attempt, plan.tasks[0].earlier_runs) == (2, (run_id,))


def fill(harness: plan_harness.Harness) -> None:
    """Fill the disk."""
    disk_of(harness).full = True


async def ended(harness: plan_harness.Harness, session_id: str) -> plans.Plan:
    """Advance the time until a plan has ended."""
    async with asyncio.timeout(60):
        while True:
            plan = await harness.show(session_id)
            if plan.status in (plans.PlanState.DONE, plans.PlanState.FAILED):
                return plan
            await pools.idle()
            # Part of the work runs in threads.
            await asyncio.sleep(0.0005)
            advance(harness, 1)
