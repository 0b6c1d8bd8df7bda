"""Crashes of the planner: the next process brings the plan to the same end from any point, with one run per task."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from app.domain import plans
from tests.unit.services.plans import plan_harness
from tests.unit.services.plans.plan_harness import task
from tests.unit.worker import pools

CHIEF_SAYS = plan_harness.says(
    {"id": 1, "description": "sweep room 1", "dod": "it shines"},
    {"id": 2, "description": "sweep room 2", "deps": [1]},
)
LOST = ("storage.plan.", "storage.create.", "storage.issue.", "storage.decide.", "pool.")
"""Prefixes of the points at which a crash is tried."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> plan_harness.Place:
    """Return a project for all harnesses."""
    made = plan_harness.Place(tmp_path_factory.mktemp("place"))
    made.project.say("chief*", text=CHIEF_SAYS)
    return made


async def begin(place: plan_harness.Place) -> tuple[plan_harness.Harness, str]:
    """Open a harness with an approved plan: one task, and two that depend on it, the second of which fails."""
    harness = await plan_harness.Harness(place).open()
    harness.toolbox.fail(3)
    session_id = await harness.create(task("sweep room 1"), task("sweep room 2", 1), task("sweep room 3", 1))
    await harness.application.plans.approve(session_id)
    harness.probes.passed_points.clear()
    return harness, session_id


async def left_by(harness: plan_harness.Harness, session_id: str) -> dict[str, object]:
    """Return the relevant state of a plan at its end."""
    plan = await harness.rested(session_id)
    issues = await harness.issues()
    left: dict[str, object] = {
        "status": plan.status,
        "tasks": plan_harness.stand(plan),
        "attempts": [each.attempt for each in plan.tasks],
        "earlier": [each.earlier_runs for each in plan.tasks],
        "errors": [(each.error or {}).get("code") for each in plan.tasks],
        "runs": sorted(await harness.runs()),
        "issues": [(issue.kind, issue.status) for issue in issues],
    }
    assert {each.run_id for each in plan.tasks if each.run_id} == set(await harness.run_ids())
    assert [issue.run_id for issue in issues] == [each.run_id for each in plan.tasks if each.error]
    return left


async def test_the_end_is_the_same_wherever_a_process_dies(place: plan_harness.Place) -> None:
    """After a crash at any write of the plan or its runs, the end is the same, with one run per task."""
    expected: dict[str, object] = {}

    async def check(harness: plan_harness.Harness, session_id: str) -> None:
        left = await left_by(harness, session_id)
        # The first check is of a plan without a crash.
        assert left == (expected or left)
        expected.update(left)
        assert Counter((each, key) for each, _, key, _ in harness.toolbox.performed)[1, "fetch"] <= 2

    points = await plan_harness.crash_everywhere(lambda: begin(place), check, LOST)
    assert points >= {"storage.plan.before_write", "storage.create.before_rename"}


async def test_a_start_that_only_the_journal_has_is_carried_out(place: plan_harness.Place) -> None:
    """A start that was journalled but not yet in the plan's file is carried out after a crash, without an order."""
    harness, session_id = await begin(place)
    left = harness.crash_when("storage.plan.before_write", 1)
    starting = asyncio.ensure_future(harness.application.plans.start(session_id))
    assert await harness.dies(left, starting)
    shown = json.loads(harness.store.disk.read(f"sessions/{session_id}/plan.json"))["status"]
    await harness.restart()
    plan = await harness.until(session_id, lambda plan: plan.status is plans.PlanState.FAILED)

    assert shown == plans.PlanState.APPROVED
    assert plan_harness.stand(plan) == {"t1": "done", "t2": "done", "t3": "failed"}

    await harness.close()


async def _made(harness: plan_harness.Harness) -> None:
    created = await harness.application.plans.create(plan_harness.intended("tidy up", key="k"))
    await harness.rested(created.plan.session_id)


async def test_the_chiefs_tasks_are_taken_over_once(place: plan_harness.Place) -> None:
    """After a crash at any write for an intent, the chief has one run and its two tasks appear once."""
    harness = await plan_harness.Harness(place).open()
    created = await harness.application.plans.create(plan_harness.intended("tidy up", key="k"))
    session_id = created.plan.session_id
    await harness.rested(session_id)
    passed_points, expected = list(harness.probes.passed_points), _split(await harness.show(session_id))
    await harness.close()
    points, died = plan_harness.crash_points(passed_points, LOST), 0
    for point, nth in points:
        harness = await plan_harness.Harness(place).open()
        left = harness.crash_when(point, nth)
        making = asyncio.ensure_future(_made(harness))
        if not await harness.dies(left, making):
            await making
            await harness.close()
            continue
        died += 1
        await harness.restart()
        again = await harness.application.plans.create(plan_harness.intended("tidy up", key="k"))

        assert again.plan.session_id == session_id
        assert _split(await harness.rested(session_id)) == expected, (point, nth)
        assert await harness.runs() == ["done"]

        await harness.close()

    assert len(points) > 10
    assert died > 0.8 * len(points)


async def test_a_task_that_is_written_down_as_begun_gets_its_run(place: plan_harness.Place) -> None:
    """A crash between a task's begun state and its run's creation leaves no task without a run."""
    harness, session_id = await begin(place)
    left = harness.crash_when("storage.create.before_rename", 1)
    starting = harness.start_soon(session_id)
    await harness.take_over(left)
    await plan_harness.over(starting)
    await harness.store.start()
    kept = await harness.store.plans.get(session_id)
    await harness.store.close()

    assert kept is not None
    assert (kept.tasks[0].status, kept.tasks[0].run_id) == (plans.TaskState.RUNNING, None)

    await harness.restart()

    assert (await harness.rested(session_id)).tasks[0].status is plans.TaskState.DONE

    await harness.close()


async def test_an_interrupted_plan_continues_only_when_asked(place: plan_harness.Place) -> None:
    """A process that is not the service continues an interrupted plan only when asked."""
    harness, session_id = await begin(place)
    harness.toolbox.hold(1)
    await harness.application.plans.start(session_id)
    await harness.toolbox.begun(1)
    await harness.crash()
    harness.toolbox.release(1)
    await harness.restart(recover=False)
    await pools.idle()

    assert harness.application.engine.status().running == 0

    plan = await harness.rested(session_id)

    assert plan_harness.stand(plan) == {"t1": "done", "t2": "done", "t3": "failed"}
    assert len(await harness.runs()) == 3

    await harness.close()


async def test_a_command_that_sends_a_run_on_begins_no_other_task(place: plan_harness.Place) -> None:
    """A command that resumes a run brings its task to the end, and begins no other task of the plan."""
    harness, session_id = await begin(place)
    harness.toolbox.fail(1)
    await harness.application.plans.start(session_id)
    failed = await harness.rested(session_id)
    harness.toolbox.mend(1)
    await harness.close()
    await harness.restart(recover=False)
    await harness.resume(str(failed.tasks[0].run_id))
    plan = await harness.comes_to(session_id, t1="done")
    await pools.idle()

    assert plan_harness.stand(plan) == {"t1": "done", "t2": "pending", "t3": "pending"}
    assert len(await harness.runs()) == 1

    await harness.close()


def _split(plan: plans.Plan) -> list[object]:
    tasks = [(each.id, each.description, each.deps, each.dod, each.recipe_id) for each in plan.tasks]
    return [plan.status, plan.created_by, plan.intent, plan.awaits_chief, tasks]
