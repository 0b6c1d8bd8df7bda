"""Plans made by the chief: its tasks, and chiefs that make no plan."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.domain import plans
from app.services.plans import requests
from tests.unit.services.plans import given, plan_harness
from tests.unit.services.plans.plan_harness import task
from tests.unit.worker import pools

SPLIT: tuple[dict[str, Any], ...] = (
    {"id": 2, "description": "carry the box", "deps": [1], "dod": "it is there", "args": {"wheels": 4}},
    {"id": 1, "description": "sweep room 1", "deps": [], "dod": "it shines"},
    {"id": 3, "description": "make it nice", "deps": [], "dod": "it is nice", "scoping_question": "How nice?"},
)


@pytest.fixture
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[plan_harness.Harness]:
    """Return an open harness whose chief splits every intent the same way."""
    place = plan_harness.Place(tmp_path_factory.mktemp("place"))
    place.project.say("chief*", text=plan_harness.says(*SPLIT))
    opened = await plan_harness.Harness(place).open()
    yield opened
    await opened.close()


async def test_an_intent_becomes_tasks(harness: plan_harness.Harness) -> None:
    """The chief's run gets the intent, and its tasks are put in a valid order and scoped."""
    created = await harness.application.plans.create(plan_harness.intended("tidy up"))
    awaited = created.plan
    plan = await harness.rested(awaited.session_id)
    run = await harness.application.runs.reader.view(str(plan.chief_run_id))

    assert (awaited.status, awaited.awaits_chief, awaited.tasks) == (plans.PlanState.DRAFT, True, ())
    assert awaited.chief_run_id == plan.chief_run_id
    assert (run.start.session_id, run.start.args["intent"]) == (plan.session_id, "tidy up")
    assert (plan.status, plan.created_by, plan.awaits_chief) == (plans.PlanState.DRAFT, plans.BY_CHIEF, False)
    assert [each.id for each in plan.tasks] == [1, 2, 3]
    assert plan_harness.stand(plan) == {"t1": "pending", "t2": "needs_scoping", "t3": "needs_scoping"}
    assert [each.recipe_id for each in plan.tasks] == ["sweep", "carry", None]


async def test_invalid_arguments_of_the_chief_become_a_question(harness: plan_harness.Harness) -> None:
    """Wrong arguments of the chief become a question of the system; the chief's own questions remain its own."""
    created = await harness.application.plans.create(plan_harness.intended("tidy up"))
    plan = await harness.rested(created.plan.session_id)
    _, carry, nice = plan.tasks

    assert (carry.asked_by, nice.asked_by) == (plans.BY_SYSTEM, plans.BY_CHIEF)
    assert "wheels" in str(carry.scoping_question)
    assert nice.scoping_question == "How nice?"


async def test_a_plan_cannot_be_changed_while_the_chief_works(harness: plan_harness.Harness) -> None:
    """Until the chief's tasks are there, the plan can be read but not changed."""
    harness.place.project.say("chief*", text=plan_harness.says(*SPLIT))
    harness.door.clear()
    created = await harness.application.plans.create(plan_harness.intended("tidy up"))
    session_id = created.plan.session_id
    for order in (
        harness.application.plans.approve(session_id),
        harness.application.plans.add_task(session_id, task("sweep it")),
    ):
        with pytest.raises(errors.WrongState):
            await order
    harness.door.set()
    waited = await plan_harness.soon(harness.application.plans.wait(session_id, 60, created.plan.revision))

    assert len(waited.tasks) == 3


async def test_a_chief_that_makes_no_plan_is_asked_again(harness: plan_harness.Harness) -> None:
    """Two replies that are not a plan fail it with the reason, and a start continues the same run of the chief."""
    harness.place.project.say("chief*", text="I would rather not.")
    created = await harness.application.plans.create(plan_harness.intended("tidy up"))
    session_id = created.plan.session_id
    failed = await harness.rested(session_id)

    assert (failed.status, failed.awaits_chief) == (plans.PlanState.FAILED, False)
    assert (failed.error or {})["code"] == "decomposition_invalid"

    harness.place.project.say("chief*", text=plan_harness.says(*SPLIT))
    again = await harness.application.plans.start(session_id)

    assert (again.status, again.awaits_chief, again.error) == (plans.PlanState.DRAFT, True, None)

    plan = await harness.rested(session_id)

    assert (plan.status, len(plan.tasks)) == (plans.PlanState.DRAFT, 3)
    assert plan.chief_run_id == failed.chief_run_id


async def test_a_chiefs_run_that_was_sent_on_by_hand_counts(harness: plan_harness.Harness) -> None:
    """A failed run of the chief that a person resumes makes the plan."""
    harness.place.project.say("chief*", text="I would rather not.")
    created = await harness.application.plans.create(plan_harness.intended("tidy up"))
    failed = await harness.rested(created.plan.session_id)
    harness.place.project.say("chief*", text=plan_harness.says(*SPLIT))
    await harness.resume(str(failed.chief_run_id))
    plan = await harness.until(created.plan.session_id, lambda plan: bool(plan.tasks))

    assert (plan.status, plan.error) == (plans.PlanState.DRAFT, None)


@pytest.mark.parametrize("how", ["cancelled", "deleted"])
async def test_a_cancelled_run_of_the_chief_fails_the_plan(harness: plan_harness.Harness, how: str) -> None:
    """A cancelled run of the chief fails the plan; a start continues the run, or creates another if it was deleted."""
    harness.place.project.say("chief*", hang=True)
    created = await harness.application.plans.create(plan_harness.intended("tidy up"))
    session_id, run_id = created.plan.session_id, str(created.plan.chief_run_id)
    await harness.application.runs.cancel(run_id)
    failed = await harness.rested(session_id)

    assert (failed.status, (failed.error or {})["code"]) == (plans.PlanState.FAILED, "run_cancelled")

    if how == "deleted":
        await harness.application.runs.delete(run_id)
    harness.place.project.say("chief*", text=plan_harness.says(*SPLIT))
    await harness.application.plans.start(session_id)
    plan = await harness.rested(session_id)

    assert (plan.chief_run_id == run_id) is (how == "cancelled")
    assert len(plan.tasks) == 3


async def test_without_a_chief_an_intent_is_refused(tmp_path: Path) -> None:
    """An intent without an agent that plays the chief is refused at its place, and no plan is created."""
    harness = await plan_harness.Harness(
        plan_harness.Place(tmp_path, agents=[plan_harness.CHIEF | {"id": "chief-001", "archetype": "writer"}])
    ).open()
    with pytest.raises(errors.RequestInvalid) as refused:
        await harness.application.plans.create(plan_harness.intended("tidy up"))

    assert (refused.value.code, given.places_and_codes(refused.value)) == ("no_chief", [("$.intent", "no_chief")])
    assert (await harness.application.plans.page(plans.PlanQuery()))[0] == []

    await harness.close()


async def test_tasks_taken_away_do_not_come_back(harness: plan_harness.Harness) -> None:
    """Tasks of the chief are taken over once: a plan whose tasks were all removed stays empty."""
    created = await harness.application.plans.create(plan_harness.intended("tidy up"))
    session_id = created.plan.session_id
    await harness.rested(session_id)
    for task_id in (2, 1, 3):
        await harness.application.plans.remove_task(session_id, task_id)
    harness.application.planner.wake(session_id)
    await pools.idle()
    plan = await harness.show(session_id)

    assert (plan.tasks, plan.status) == ((), plans.PlanState.DRAFT)

    added = await harness.application.plans.add_task(session_id, task("sweep it"))

    assert [each.id for each in added.plan.tasks] == [4]


async def test_tasks_with_an_intent_need_no_chief(harness: plan_harness.Harness) -> None:
    """A request with an intent and tasks stores the intent, and the chief is not asked."""
    created = await harness.application.plans.create(requests.NewPlan(intent="Tidy", tasks=(task("sweep it"),)))

    assert (created.plan.intent, created.plan.created_by, created.plan.chief_run_id) == ("Tidy", plans.BY_USER, None)
    assert await harness.runs() == []
