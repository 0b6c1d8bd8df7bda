"""The planner over a store in memory: which tasks it begins and when, and orders to a plan meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.domain import plans, states
from app.services import gate_inbox
from app.services import gates as gate_services
from app.services import requests as run_requests
from app.services.plans import facts, requests, scoping
from tests.unit.services.plans import chores, plan_harness
from tests.unit.services.plans.plan_harness import task
from tests.unit.worker import pools


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> plan_harness.Place:
    """Return a project for all harnesses."""
    return plan_harness.Place(tmp_path_factory.mktemp("place"))


async def test_a_plan_is_done_when_its_tasks_are(harness: plan_harness.Harness) -> None:
    """A task begins when its dependencies are done, has one run, and the last one ends the plan."""
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1), task("sweep room 3", 1, 2))
    plan = await harness.rested(session_id)

    assert plan.status is plans.PlanState.DONE
    assert [each.attempt for each in plan.tasks] == [1, 1, 1]
    assert [number for number, _, key, _ in harness.toolbox.performed if key == "work"] == [1, 2, 3]
    assert await harness.runs() == ["done"] * 3
    assert await harness.issues() == []


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_task_with_a_partial_run_is_marked_as_partial(place: plan_harness.Place, restarts: bool) -> None:
    """A task whose run is partial is marked as partial, even if the run ended while no planner ran."""
    place.add_recipe(chores.recipe("halve", partial=True))
    harness = await plan_harness.Harness(place).open()
    harness.toolbox.hold(1)
    session_id = await harness.started(task("halve it"), task("sweep room 2", 1))
    await harness.toolbox.begun(1)
    if restarts:
        await harness.application.planner.stop()
    harness.toolbox.release(1)
    await harness.application.engine.ended(harness.toolbox.tries(1)[0][0])
    if restarts:
        await harness.crash()
        await harness.restart()
    plan = await harness.rested(session_id)

    assert plan.status is plans.PlanState.DONE
    assert [each.partial for each in plan.tasks] == [True, False]

    await harness.close()
    place.remove_recipe("halve")


async def test_an_order_that_another_input_overtook_is_made_again(harness: plan_harness.Harness) -> None:
    """An order whose input was taken by another returns the plan at rest, without waiting for a past event."""
    session_id = await harness.create(task("sweep room 1"))
    planner = harness.application.plans._planner
    opened = await planner.commands.opened(session_id)
    approved = await harness.application.plans.approve(session_id)
    overtaken = planner.commands.after(session_id, opened, planner.inputs.following(session_id, opened))

    assert await plan_harness.soon(overtaken) == approved


async def test_a_plan_begins_no_task_before_its_start(harness: plan_harness.Harness) -> None:
    """A draft and an approved plan begin no task, and a start of a running plan changes no state."""
    session_id = await harness.create(task("sweep room 1"))
    with pytest.raises(errors.WrongState):
        await harness.application.plans.start(session_id)
    await harness.application.plans.approve(session_id)

    assert await harness.runs() == []

    harness.toolbox.hold(1)
    await harness.application.plans.start(session_id)
    await harness.toolbox.begun(1)
    running = await harness.comes_to(session_id, t1="running")

    assert await harness.application.plans.start(session_id) == running

    harness.toolbox.release(1)
    await harness.rested(session_id)


async def test_recipes_of_a_plan_are_checked_beside_the_loop(
    harness: plan_harness.Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Approve, start and resume check recipes in a thread, so that they do not block the loop."""
    threads: list[int] = []
    monkeypatch.setattr(scoping.Scoper, "refuse_unready", lambda *_: threads.append(threading.get_ident()))
    session_id = await harness.create(task("sweep room 1"))
    harness.toolbox.hold(1)
    for order in ("approve", "start", "pause", "resume"):
        await getattr(harness.application.plans, order)(session_id)

    assert len(threads) == 3
    assert threading.get_ident() not in threads

    harness.toolbox.release(1)


async def test_a_run_gets_its_tasks_arguments_and_the_plans_labels(harness: plan_harness.Harness) -> None:
    """A run gets its task's description and arguments, and the plan's labels, priority, session and task number."""
    carry = task("carry the box", args={"what": "a box"}, dod="it is there")
    session_id = await harness.started(
        carry, task("sweep the floor"), labels={"book": "one"}, priority=3, intent="Move"
    )
    plan = await harness.rested(session_id)
    view = await harness.application.runs.reader.view(str(plan.tasks[0].run_id))

    assert view.start.description == "carry the box"
    assert view.start.args == {"what": "a box", "times": 1}
    assert (view.start.session_id, view.start.session_plan_task_id) == (session_id, 1)
    assert (view.start.labels, view.start.priority, view.start.owner) == ({"book": "one"}, 3, "service")


async def test_independent_tasks_run_together_up_to_the_limit(place: plan_harness.Place) -> None:
    """A plan runs as many tasks at a time as the pool's capacity, in their order."""
    harness = await plan_harness.Harness(place, limit=3).open()
    harness.toolbox.hold_all()
    session_id = await harness.started(*(task(f"sweep room {number}") for number in range(1, 8)))
    await harness.toolbox.begun(1, 2, 3)
    plan = await harness.comes_to(session_id, t1="running", t2="running", t3="running")

    assert [each.status.value for each in plan.tasks] == ["running"] * 3 + ["pending"] * 4

    harness.toolbox.release_all()
    ended = await harness.rested(session_id)

    assert ended.status is plans.PlanState.DONE
    assert harness.toolbox.busiest == 3

    await harness.close()


async def test_a_task_waiting_for_a_person_takes_no_capacity(tmp_path: Path) -> None:
    """Tasks whose runs wait at a gate or are paused take no capacity, and continue after the answers."""
    place = plan_harness.Place(tmp_path)
    place.add_recipe(chores.recipe("ask", asks=True))
    harness = await plan_harness.Harness(place, limit=1).open()
    session_id = await harness.started(task("ask one"), task("ask two"), task("sweep room 3"), task("sweep room 4"))
    waiting = await harness.comes_to(session_id, t3="done", t4="done")
    gates, _ = await harness.application.gates.page(gate_inbox.GateQuery())

    assert plan_harness.stand(waiting) == {"t1": "running", "t2": "running", "t3": "done", "t4": "done"}
    assert len(gates) == 2

    await harness.crash()
    await harness.restart()
    for shown in gates:
        await harness.application.gates.answer(shown.gate.gate_id, gate_services.Reply(decision="approve"))
    plan = await harness.rested(session_id)

    assert plan.status is plans.PlanState.DONE
    assert [each.attempt for each in plan.tasks] == [1, 1, 1, 1]

    await harness.close()


async def test_waiting_runs_are_looked_up_only_without_capacity(
    harness: plan_harness.Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner checks whether runs wait for a person only if a task lacks capacity."""
    asked: list[str] = []
    rests = facts.Facts.rests

    async def noted(found: facts.Facts, run_id: str) -> bool:
        asked.append(run_id)
        return await rests(found, run_id)

    monkeypatch.setattr(facts.Facts, "rests", noted)
    harness.toolbox.hold_all()
    session_id = await harness.started(*(task(f"sweep room {number}") for number in range(1, 8)), task("sweep it", 1))
    await harness.toolbox.begun(*range(1, 8))
    for _ in range(3):
        await harness.application.plans.add_task(session_id, task("sweep it", 1))
        await pools.idle()

    assert asked == []

    harness.toolbox.release_all()
    await harness.until(session_id, lambda plan: plan.status is plans.PlanState.DONE)


async def test_a_failed_task_blocks_only_its_dependents(harness: plan_harness.Harness) -> None:
    """A failed task blocks only its dependents; then the plan fails with one issue."""
    harness.toolbox.fail(1)
    session_id = await harness.started(
        task("sweep room 1"), task("sweep room 2", 1), task("sweep room 3"), task("sweep room 4", 3)
    )
    plan = await harness.rested(session_id)
    (issue,) = await harness.issues()

    assert plan.status is plans.PlanState.FAILED
    assert plan_harness.stand(plan) == {"t1": "failed", "t2": "blocked", "t3": "done", "t4": "done"}
    assert (plan.tasks[0].error or {})["code"] == "chore_failed"
    assert (issue.kind, issue.run_id, issue.session_id) == ("task", plan.tasks[0].run_id, session_id)


async def test_a_retry_continues_the_same_run(harness: plan_harness.Harness) -> None:
    """A retry continues the same run without repeating its done step, and then the dependent task runs."""
    harness.toolbox.fail(1)
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1))
    failed = await harness.rested(session_id)
    harness.toolbox.mend(1)
    retried = await harness.application.plans.retry(session_id, 1)
    done = await harness.rested(session_id)

    assert (retried.status, retried.tasks[0].status) == (plans.PlanState.RUNNING, plans.TaskState.RUNNING)
    assert done.status is plans.PlanState.DONE
    assert (done.tasks[0].run_id, done.tasks[0].attempt) == (failed.tasks[0].run_id, 1)
    assert done.tasks[0].error is None
    assert [(issue.kind, issue.status) for issue in await harness.issues()] == [("task", "closed")]
    assert len(harness.toolbox.tries(1, "fetch")) == 1
    assert len(harness.toolbox.tries(1, "work")) == 2


async def test_a_retry_that_fails_again_has_the_same_issue(harness: plan_harness.Harness) -> None:
    """A second failure opens the same issue of the run again."""
    harness.toolbox.fail(1)
    session_id = await harness.started(task("sweep room 1"))
    await harness.rested(session_id)
    await harness.application.plans.retry(session_id, 1)
    await harness.rested(session_id)

    assert [(issue.kind, issue.status) for issue in await harness.issues()] == [("task", "open")]


async def test_a_fresh_retry_makes_another_run(harness: plan_harness.Harness) -> None:
    """A fresh retry creates a new run from the first step, and the task remembers the old one."""
    harness.toolbox.fail(1)
    session_id = await harness.started(task("sweep room 1"))
    failed = await harness.rested(session_id)
    harness.toolbox.mend(1)
    await harness.application.plans.retry(session_id, 1, fresh=True)
    done = await harness.rested(session_id)

    assert done.tasks[0].earlier_runs == (failed.tasks[0].run_id,)
    assert (done.tasks[0].attempt, done.status) == (2, plans.PlanState.DONE)
    assert len(harness.toolbox.tries(1, "fetch")) == 2


async def test_a_changed_task_gets_another_run(harness: plan_harness.Harness) -> None:
    """A failed task with a new description is retried by a new run with that description."""
    harness.toolbox.fail(1)
    session_id = await harness.started(task("sweep room 1"))
    failed = await harness.rested(session_id)
    harness.toolbox.mend(1)
    await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(description="paint room 1"))
    await harness.application.plans.retry(session_id, 1)
    done = await harness.rested(session_id)
    view = await harness.application.runs.reader.view(str(done.tasks[0].run_id))

    assert done.tasks[0].run_id != failed.tasks[0].run_id
    assert (view.start.recipe_id, view.start.description) == ("paint", "paint room 1")


async def test_a_retry_of_a_task_whose_run_was_deleted_makes_another(harness: plan_harness.Harness) -> None:
    """A retry of a task whose run was deleted creates a new run."""
    harness.toolbox.fail(1)
    session_id = await harness.started(task("sweep room 1"))
    failed = await harness.rested(session_id)
    await harness.application.runs.delete(str(failed.tasks[0].run_id))
    harness.toolbox.mend(1)
    await harness.application.plans.retry(session_id, 1)
    done = await harness.rested(session_id)

    assert done.status is plans.PlanState.DONE
    assert done.tasks[0].earlier_runs == (failed.tasks[0].run_id,)


async def test_only_a_failed_task_is_retried(harness: plan_harness.Harness) -> None:
    """A retry of a done task, or of one that does not exist, is refused and starts no run."""
    session_id = await harness.started(task("sweep room 1"))
    await harness.rested(session_id)
    with pytest.raises(errors.WrongState):
        await harness.application.plans.retry(session_id, 1)
    with pytest.raises(errors.NotFound) as unknown:
        await harness.application.plans.retry(session_id, 2)

    assert unknown.value.code == "task_not_found"
    assert len(await harness.runs()) == 1


async def test_a_blocked_task_is_begun_by_force(harness: plan_harness.Harness) -> None:
    """A forced task begins although its dependency has failed, and the plan runs again for it."""
    harness.toolbox.fail(1)
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1))
    await harness.rested(session_id)
    forced = await harness.application.plans.force_start(session_id, 2)
    plan = await harness.rested(session_id)

    assert (forced.status, forced.tasks[1].forced) == (plans.PlanState.RUNNING, True)
    assert plan_harness.stand(plan) == {"t1": "failed", "t2": "done"}
    assert plan.status is plans.PlanState.FAILED


async def test_a_paused_plan_ends_its_run_and_begins_no_task(harness: plan_harness.Harness) -> None:
    """A paused plan lets the current run end and begins no task, and a resume continues it."""
    harness.toolbox.hold(1)
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1))
    await harness.toolbox.begun(1)
    await harness.application.plans.pause(session_id)
    harness.toolbox.release(1)
    paused = await harness.rested(session_id)

    assert paused.status is plans.PlanState.PAUSED
    assert plan_harness.stand(paused) == {"t1": "done", "t2": "pending"}

    await harness.application.plans.resume(session_id)

    assert (await harness.rested(session_id)).status is plans.PlanState.DONE


async def test_a_task_added_to_a_done_plan_waits_for_a_person(harness: plan_harness.Harness) -> None:
    """A task added to a done plan pauses it, and a resume carries out that task only."""
    session_id = await harness.started(task("sweep room 1"))
    await harness.rested(session_id)
    added = (await harness.application.plans.add_task(session_id, task("sweep room 2", 1))).plan

    assert (added.status, added.tasks[-1].id) == (plans.PlanState.PAUSED, 2)

    await harness.application.plans.resume(session_id)

    assert (await harness.rested(session_id)).status is plans.PlanState.DONE
    assert len(await harness.runs()) == 2


async def test_a_running_or_done_task_is_not_changed(harness: plan_harness.Harness) -> None:
    """An edit of a running or done task, and the removal of a running or needed one, are refused."""
    harness.toolbox.hold(2)
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1))
    await harness.toolbox.begun(2)
    codes = []
    for task_id in (1, 2):
        with pytest.raises(errors.Conflict) as refused:
            await harness.application.plans.edit_task(session_id, task_id, requests.TaskEdit(dod="never"))
        codes.append(refused.value.code)
    for task_id in (1, 2):
        with pytest.raises(errors.Conflict) as refused:
            await harness.application.plans.remove_task(session_id, task_id)
        codes.append(refused.value.code)

    assert codes == ["task_begun", "task_begun", "task_needed", "task_begun"]

    harness.toolbox.release(2)
    await harness.rested(session_id)


async def test_a_change_with_an_outdated_revision_is_a_conflict(harness: plan_harness.Harness) -> None:
    """A change with an outdated revision is a conflict with the current plan, and changes no field."""
    session_id = await harness.create(task("sweep room 1"))
    await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(dod="it shines"), revision=1)
    with pytest.raises(errors.Conflict) as refused:
        await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(dod="it is dry"), revision=1)
    plan = await harness.show(session_id)

    assert refused.value.code == "plan_changed"
    assert refused.value.detail["plan"] == plan.to_json()
    assert (plan.revision, plan.tasks[0].dod) == (2, "it shines")


async def test_a_cancelled_run_fails_its_task_until_it_is_sent_on(harness: plan_harness.Harness) -> None:
    """A run cancelled by hand fails its task without an issue; resumed by hand, it completes the task."""
    harness.toolbox.hold(1)
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1))
    await harness.toolbox.begun(1)
    run_id = str((await harness.comes_to(session_id, t1="running")).tasks[0].run_id)
    await harness.application.runs.cancel(run_id)
    failed = await harness.rested(session_id)

    assert (failed.status, (failed.tasks[0].error or {})["code"]) == (plans.PlanState.FAILED, "run_cancelled")
    assert await harness.issues() == []

    harness.toolbox.release(1)
    await harness.application.runs.resume(run_id, run_requests.ResumeRequest())
    sent_on = await harness.comes_to(session_id, t1="done")

    assert (sent_on.status, sent_on.tasks[1].status) == (plans.PlanState.FAILED, plans.TaskState.PENDING)

    await harness.application.plans.start(session_id)

    assert (await harness.rested(session_id)).status is plans.PlanState.DONE


async def test_a_paused_run_keeps_its_task(harness: plan_harness.Harness) -> None:
    """A task whose run is paused stays running without delaying a wait for the plan, and continues with the run."""
    harness.door.clear()
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1))
    plan = await harness.until(session_id, lambda plan: plan.tasks[0].run_id is not None)
    run_id = str(plan.tasks[0].run_id)
    await plan_harness.until(lambda: bool(harness.toolbox.performed))
    await harness.application.runs.pause(run_id)
    waiting = asyncio.create_task(harness.application.plans.rested(session_id))
    await pools.idle()

    assert not waiting.done()

    harness.door.set()

    assert plan_harness.stand(await plan_harness.soon(waiting)) == {"t1": "running", "t2": "blocked"}
    assert (await harness.application.runs.reader.view(run_id)).status is states.RunState.PAUSED

    await harness.application.runs.unpause(run_id)

    assert (await harness.rested(session_id)).status is plans.PlanState.DONE


async def test_a_plan_is_waited_for(harness: plan_harness.Harness) -> None:
    """A wait returns at the next change, at once for another revision or a plan at rest, or after its time."""
    harness.toolbox.hold(1)
    session_id = await harness.started(task("sweep room 1"), task("sweep room 2", 1))
    await harness.toolbox.begun(1)
    known = (await harness.until(session_id, lambda plan: plan.tasks[0].run_id is not None)).revision

    assert (await plan_harness.soon(harness.application.plans.wait(session_id, 60, known - 1))).revision == known
    assert (await plan_harness.soon(harness.application.plans.wait(session_id, 0.01, known))).revision == known

    waiting = asyncio.create_task(harness.application.plans.wait(session_id, 60, None))
    await asyncio.sleep(0)
    harness.toolbox.release(1)

    assert (await plan_harness.soon(waiting)).revision > known

    rested = await harness.rested(session_id)

    assert await plan_harness.soon(harness.application.plans.wait(session_id, 60, rested.revision)) == rested


async def test_a_damaged_plan_does_not_stop_other_plans(harness: plan_harness.Harness) -> None:
    """A plan with a broken file is reported as damaged and not changed, and other plans continue."""
    harness.toolbox.hold(1)
    broken = await harness.started(task("sweep room 1"))
    await harness.toolbox.begun(1)
    harness.store.disk.write(f"sessions/{broken}/plan.json", b"{", sync=True)
    harness.toolbox.release(1)
    sound = await harness.started(task("sweep room 1"))

    assert (await harness.rested(sound)).status is plans.PlanState.DONE
    with pytest.raises(errors.Conflict) as refused:
        await harness.rested(broken)
    assert refused.value.code == "plan_damaged"
    assert harness.store.disk.read(f"sessions/{broken}/plan.json") == b"{"


async def test_a_plan_written_by_hand_is_taken_up(place: plan_harness.Place) -> None:
    """A plan written by hand in the documented format is continued, and its unknown fields remain."""
    harness = plan_harness.Harness(place)
    await harness.store.start()
    tasks = [
        {"id": 1, "description": "sweep room 1", "recipe_id": "sweep", "deps": [], "status": "done", "run_id": "run_a"},
        {"id": 2, "description": "sweep room 2", "recipe_id": None, "deps": [1], "status": "blocked", "run_id": None},
    ]
    plan = {"session_id": "sess_own", "created_by": "chief", "status": "running", "mood": "good", "tasks": tasks}
    harness.put("sess_own", plan | {"created_at": "2026-02-10T14:00:00Z"})
    await harness.store.close()
    await harness.restart()
    done = await harness.until("sess_own", lambda plan: plan.status is plans.PlanState.DONE)

    assert (done.tasks[0].run_id, done.tasks[1].recipe_id) == ("run_a", "sweep")
    assert done.to_json()["mood"] == "good"
    assert await harness.runs() == ["done"]

    await harness.close()


async def test_a_stop_leaves_nothing_behind(harness: plan_harness.Harness) -> None:
    """Starts and stops can be repeated, and no task of the planner is left after a stop."""
    harness.toolbox.hold(1)
    await harness.started(task("sweep room 1"))
    await harness.toolbox.begun(1)
    harness.application.planner.start()
    await plan_harness.soon(harness.application.planner.stop())
    await plan_harness.soon(harness.application.planner.stop())
    names = [each.get_name() for each in asyncio.all_tasks()]

    assert not [name for name in names if name.startswith(("plan", "watch"))]


async def test_a_broken_planner_is_loud(harness: plan_harness.Harness, caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error of the planner is logged, makes the service unready and ends waits; other plans continue."""
    session_id = await harness.create(task("sweep room 1"))
    await harness.application.plans.approve(session_id)
    observe, broken = harness.application.planner.inputs._observe, RuntimeError("it broke")

    async def fail(plan: plans.Plan, *given: Any) -> Any:
        if plan.session_id == session_id:
            raise broken
        return await observe(plan, *given)

    harness.application.planner.inputs._observe = fail  # type: ignore[method-assign, assignment]
    await harness.application.plans.start(session_id)
    with pytest.raises(errors.Unavailable) as told:
        await harness.rested(session_id)
    with pytest.raises(errors.Unavailable) as unready:
        await harness.application.health.ready()
    other = await harness.started(task("sweep room 1"))

    assert (told.value.code, unready.value.code) == ("planner_broken", "planner_broken")
    assert any(record.levelname == "CRITICAL" and session_id in record.getMessage() for record in caplog.records)
    assert (await harness.rested(other)).status is plans.PlanState.DONE

    harness.application.planner.inputs._observe = observe  # type: ignore[method-assign]
    await harness.application.plans.start(session_id)
    await harness.application.plans.pause(session_id)
    await harness.application.plans.resume(session_id)

    assert (await harness.rested(session_id)).status is plans.PlanState.DONE
    assert (await harness.application.health.ready()).status == "ready"


async def test_no_plan_is_ahead_of_its_runs(harness: plan_harness.Harness) -> None:
    """A task runs as long as its ended run is still listed as running."""
    harness.toolbox.hold(1)
    session_id = await harness.started(task("sweep room 1"))
    await harness.toolbox.begun(1)
    run_id = str((await harness.comes_to(session_id, t1="running")).tasks[0].run_id)
    look, seen = harness.application.plans._facts.of_run, list[asyncio.Future[Any]]()
    point = "run.after_ended"
    harness.probes.at(point, harness.probes.count(point) + 1, lambda: seen.append(asyncio.ensure_future(look(run_id))))
    harness.toolbox.release(1)
    await harness.rested(session_id)

    assert [(await each).status for each in seen] == [states.RunState.RUNNING]
    assert await harness.runs() == ["done"]
