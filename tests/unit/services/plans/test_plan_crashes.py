"""Crashes of the planner: wherever its process dies, the next one brings the plan to the same end, with one run per
task.
"""

from __future__ import annotations

from collections import Counter

import pytest

from app.domain import plans
from tests.unit.services.plans import desks
from tests.unit.services.plans.desks import task
from tests.unit.worker import pools

CHIEF_SAYS = desks.says(
    {"id": 1, "description": "sweep room 1", "dod": "it shines"},
    {"id": 2, "description": "sweep room 2", "deps": [1]},
)
LOST = ("storage.plan.", "storage.create.", "storage.issue.", "storage.decide.", "pool.")
"""Beginnings of the points at which it is tried."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> desks.Place:
    """Return a project for all desks."""
    made = desks.Place(tmp_path_factory.mktemp("place"))
    made.project.say("chief*", text=CHIEF_SAYS)
    return made


async def begin(place: desks.Place) -> tuple[desks.Desk, str]:
    """Open a desk with a plan that is about to be started: one task, two that need it, the second of which fails."""
    desk = await desks.Desk(place).open()
    desk.toolbox.fail(3)
    session_id = await desk.create(task("sweep room 1"), task("sweep room 2", 1), task("sweep room 3", 1))
    await desk.room.plans.approve(session_id)
    desk.probes.story.clear()
    return desk, session_id


async def left_by(desk: desks.Desk, session_id: str) -> dict[str, object]:
    """Return what counts of a plan at its end."""
    plan = await desk.rested(session_id)
    issues = await desk.issues()
    left: dict[str, object] = {
        "status": plan.status,
        "tasks": desks.stand(plan),
        "attempts": [each.attempt for each in plan.tasks],
        "earlier": [each.earlier_runs for each in plan.tasks],
        "errors": [(each.error or {}).get("code") for each in plan.tasks],
        "runs": sorted(await desk.runs()),
        "issues": [(issue.kind, issue.status) for issue in issues],
    }
    assert {each.run_id for each in plan.tasks if each.run_id} == set(await desk.run_ids())
    assert [issue.run_id for issue in issues] == [each.run_id for each in plan.tasks if each.error]
    return left


async def undisturbed(place: desks.Place) -> tuple[list[str], dict[str, object]]:
    """Let the plan come to its end, and return the points that were passed and what it left."""
    desk, session_id = await begin(place)
    await desk.room.plans.start(session_id)
    await desk.rested(session_id)
    story, left = list(desk.probes.story), await left_by(desk, session_id)
    await desk.close()
    return story, left


async def test_the_end_is_the_same_wherever_a_process_dies(place: desks.Place) -> None:
    """For every write of a plan, and those of its runs that matter to it: kill, restart, same end, one run per task."""
    story, expected = await undisturbed(place)
    points = [(point, story[: at + 1].count(point)) for at, point in enumerate(story) if point.startswith(LOST)]
    for point, nth in points:
        desk, session_id = await begin(place)
        left = desk.crash_when(point, nth)
        starting = desk.start_soon(session_id)
        await desk.bury(left)
        await desks.over(starting)
        await desk.restart()
        if (await desk.show(session_id)).status is plans.PlanState.APPROVED:
            await desk.room.plans.start(session_id)

        assert await left_by(desk, session_id) == expected, (point, nth)

        tried = Counter((each, key) for each, _, key, _ in desk.toolbox.performed)
        assert tried[1, "fetch"] <= 2
        await desk.close()

    assert {point for point, _ in points} >= {"storage.plan.before_write", "storage.create.before_rename"}


async def test_the_chiefs_tasks_are_taken_over_once(place: desks.Place) -> None:
    """Wherever a process dies over an intent, the chief has one run, and its two tasks are there once."""
    desk = await desks.Desk(place).open()
    created = await desk.room.plans.create(desks.intended("tidy up", key="k"))
    session_id = created.plan.session_id
    await desk.rested(session_id)
    story, expected = list(desk.probes.story), _split(await desk.show(session_id))
    await desk.close()
    points = [(point, story[: at + 1].count(point)) for at, point in enumerate(story) if point.startswith(LOST)]
    for point, nth in points:
        desk = await desks.Desk(place).open()
        left = desk.crash_when(point, nth)
        making = desk.create_soon(desks.intended("tidy up", key="k"))
        await desk.bury(left)
        await desks.over(making)
        await desk.restart()
        again = await desk.room.plans.create(desks.intended("tidy up", key="k"))

        assert again.plan.session_id == session_id
        assert _split(await desk.rested(session_id)) == expected, (point, nth)
        assert await desk.runs() == ["done"]

        await desk.close()

    assert len(points) > 10


async def test_a_task_that_is_written_down_as_begun_gets_its_run(place: desks.Place) -> None:
    """Between the plan that says so and the run there is a moment; a process that dies in it leaves nothing undone."""
    desk, session_id = await begin(place)
    left = desk.crash_when("storage.create.before_rename", 1)
    starting = desk.start_soon(session_id)
    await desk.bury(left)
    await desks.over(starting)
    await desk.store.start()
    kept = await desk.store.plans.get(session_id)
    await desk.store.close()

    assert kept is not None
    assert (kept.tasks[0].status, kept.tasks[0].run_id) == (plans.TaskState.RUNNING, None)

    await desk.restart()

    assert (await desk.rested(session_id)).tasks[0].status is plans.TaskState.DONE

    await desk.close()


async def test_an_interrupted_plan_goes_on_when_it_is_asked_to(place: desks.Place) -> None:
    """A process that is not the service goes on with nothing unasked; asked, it takes up the run that was left."""
    desk, session_id = await begin(place)
    desk.toolbox.hold(1)
    await desk.room.plans.start(session_id)
    await desk.toolbox.begun(1)
    await desk.crash()
    desk.toolbox.release(1)
    await desk.restart(recover=False)
    await pools.idle()

    assert desk.room.engine.status().running == 0

    plan = await desk.rested(session_id)

    assert desks.stand(plan) == {"t1": "done", "t2": "done", "t3": "failed"}
    assert len(await desk.runs()) == 3

    await desk.close()


async def test_a_command_that_sends_a_run_on_begins_no_other_task(place: desks.Place) -> None:
    """A run that is resumed by hand without a service brings its own task to its end, and nothing else of the plan."""
    desk, session_id = await begin(place)
    desk.toolbox.fail(1)
    await desk.room.plans.start(session_id)
    failed = await desk.rested(session_id)
    desk.toolbox.mend(1)
    await desk.close()
    await desk.restart(recover=False)
    await desk.resume(str(failed.tasks[0].run_id))
    plan = await desk.comes_to(session_id, t1="done")
    await pools.idle()

    assert desks.stand(plan) == {"t1": "done", "t2": "pending", "t3": "pending"}
    assert len(await desk.runs()) == 1

    await desk.close()


def _split(plan: plans.Plan) -> list[object]:
    tasks = [(each.id, each.description, each.deps, each.dod, each.recipe_id) for each in plan.tasks]
    return [plan.status, plan.created_by, plan.intent, plan.awaits_chief, tasks]
