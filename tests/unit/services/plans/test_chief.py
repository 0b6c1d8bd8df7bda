"""Plans that the chief makes: what becomes of its tasks, and of a chief that makes none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.domain import plans
from app.services.plans import requests
from tests.unit.services.plans import desks, given
from tests.unit.services.plans.desks import task
from tests.unit.worker import pools

SPLIT: tuple[dict[str, Any], ...] = (
    {"id": 2, "description": "carry the box", "deps": [1], "dod": "it is there", "args": {"wheels": 4}},
    {"id": 1, "description": "sweep room 1", "deps": [], "dod": "it shines"},
    {"id": 3, "description": "make it nice", "deps": [], "dod": "it is nice", "scoping_question": "How nice?"},
)


@pytest.fixture
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[desks.Desk]:
    """Return an open desk whose chief splits every intent the same way."""
    place = desks.Place(tmp_path_factory.mktemp("place"))
    place.project.say("chief*", text=desks.says(*SPLIT))
    opened = await desks.Desk(place).open()
    yield opened
    await opened.close()


async def test_an_intent_becomes_tasks(desk: desks.Desk) -> None:
    """The chief's run is told the intent; its tasks stand in an order that can be, each of them scoped."""
    created = await desk.room.plans.create(desks.intended("tidy up"))
    awaited = created.plan
    plan = await desk.rested(awaited.session_id)
    run = await desk.room.runs.view(str(plan.chief_run_id))

    assert (awaited.status, awaited.awaits_chief, awaited.tasks) == (plans.PlanState.DRAFT, True, ())
    assert awaited.chief_run_id == plan.chief_run_id
    assert (run.start.session_id, run.start.args["intent"]) == (plan.session_id, "tidy up")
    assert (plan.status, plan.created_by, plan.awaits_chief) == (plans.PlanState.DRAFT, plans.BY_CHIEF, False)
    assert [each.id for each in plan.tasks] == [1, 2, 3]
    assert desks.stand(plan) == {"t1": "pending", "t2": "needs_scoping", "t3": "needs_scoping"}
    assert [each.recipe_id for each in plan.tasks] == ["sweep", "carry", None]


async def test_what_the_chief_gets_wrong_is_asked(desk: desks.Desk) -> None:
    """Arguments of the chief that do not fit are a question of the system; its own questions are its own."""
    created = await desk.room.plans.create(desks.intended("tidy up"))
    plan = await desk.rested(created.plan.session_id)
    _, carry, nice = plan.tasks

    assert (carry.asked_by, nice.asked_by) == (plans.BY_SYSTEM, plans.BY_CHIEF)
    assert "wheels" in str(carry.scoping_question)
    assert nice.scoping_question == "How nice?"


async def test_nobody_meddles_while_the_chief_is_at_work(desk: desks.Desk) -> None:
    """Until its tasks are there, the plan can be looked at, and nothing else."""
    desk.place.project.say("chief*", text=desks.says(*SPLIT), delay_seconds=0.3)
    created = await desk.room.plans.create(desks.intended("tidy up"))
    session_id = created.plan.session_id
    for order in (desk.room.plans.approve(session_id), desk.room.plans.add_task(session_id, task("sweep it"))):
        with pytest.raises(errors.WrongState):
            await order
    waited = await desks.soon(desk.room.plans.wait(session_id, 60, created.plan.revision))

    assert len(waited.tasks) == 3


async def test_a_chief_that_makes_no_plan_is_asked_again(desk: desks.Desk) -> None:
    """Two replies that are no plan fail it with the reason; a start sends the same run on."""
    desk.place.project.say("chief*", text="I would rather not.")
    created = await desk.room.plans.create(desks.intended("tidy up"))
    session_id = created.plan.session_id
    failed = await desk.rested(session_id)

    assert (failed.status, failed.awaits_chief) == (plans.PlanState.FAILED, False)
    assert (failed.error or {})["code"] == "decomposition_invalid"

    desk.place.project.say("chief*", text=desks.says(*SPLIT))
    again = await desk.room.plans.start(session_id)

    assert (again.status, again.awaits_chief, again.error) == (plans.PlanState.DRAFT, True, None)

    plan = await desk.rested(session_id)

    assert (plan.status, len(plan.tasks)) == (plans.PlanState.DRAFT, 3)
    assert plan.chief_run_id == failed.chief_run_id


async def test_a_chiefs_run_that_was_sent_on_by_hand_counts(desk: desks.Desk) -> None:
    """Whoever resumes the chief's failed run has asked the chief again."""
    desk.place.project.say("chief*", text="I would rather not.")
    created = await desk.room.plans.create(desks.intended("tidy up"))
    failed = await desk.rested(created.plan.session_id)
    desk.place.project.say("chief*", text=desks.says(*SPLIT))
    await desk.resume(str(failed.chief_run_id))
    plan = await desk.until(created.plan.session_id, lambda plan: bool(plan.tasks))

    assert (plan.status, plan.error) == (plans.PlanState.DRAFT, None)


@pytest.mark.parametrize("how", ["cancelled", "deleted"])
async def test_a_chiefs_run_that_somebody_ends(desk: desks.Desk, how: str) -> None:
    """A cancelled run of the chief fails the plan; asked again, it goes on, or is made anew if it is gone."""
    desk.place.project.say("chief*", hang=True)
    created = await desk.room.plans.create(desks.intended("tidy up"))
    session_id, run_id = created.plan.session_id, str(created.plan.chief_run_id)
    await desk.room.runs.cancel(run_id)
    failed = await desk.rested(session_id)

    assert (failed.status, (failed.error or {})["code"]) == (plans.PlanState.FAILED, "run_cancelled")

    if how == "deleted":
        await desk.room.runs.delete(run_id)
    desk.place.project.say("chief*", text=desks.says(*SPLIT))
    await desk.room.plans.start(session_id)
    plan = await desk.rested(session_id)

    assert (plan.chief_run_id == run_id) is (how == "cancelled")
    assert len(plan.tasks) == 3


async def test_without_a_chief_an_intent_is_refused(tmp_path: Path) -> None:
    """Where nobody plays the chief, an intent is refused at its place, and nothing is made."""
    desk = await desks.Desk(
        desks.Place(tmp_path, agents=[desks.CHIEF | {"id": "chief-001", "archetype": "writer"}])
    ).open()
    with pytest.raises(errors.RequestInvalid) as refused:
        await desk.room.plans.create(desks.intended("tidy up"))

    assert (refused.value.code, given.told(refused.value)) == ("no_chief", [("$.intent", "no_chief")])
    assert (await desk.room.plans.page(plans.PlanQuery()))[0] == []

    await desk.close()


async def test_tasks_taken_away_do_not_come_back(desk: desks.Desk) -> None:
    """A plan whose tasks were all removed stays without them; what the chief has made is taken over once."""
    created = await desk.room.plans.create(desks.intended("tidy up"))
    session_id = created.plan.session_id
    await desk.rested(session_id)
    for task_id in (2, 1, 3):
        await desk.room.plans.remove_task(session_id, task_id)
    desk.room.planner.look_at(session_id)
    await pools.idle()
    plan = await desk.show(session_id)

    assert (plan.tasks, plan.status) == ((), plans.PlanState.DRAFT)

    added = await desk.room.plans.add_task(session_id, task("sweep it"))

    assert [each.id for each in added.plan.tasks] == [4]


async def test_an_intent_may_stand_above_tasks(desk: desks.Desk) -> None:
    """Beside tasks an intent is only kept, and no chief is asked."""
    created = await desk.room.plans.create(requests.NewPlan(intent="Tidy", tasks=(task("sweep it"),)))

    assert (created.plan.intent, created.plan.created_by, created.plan.chief_run_id) == ("Tidy", plans.BY_USER, None)
    assert await desk.runs() == []
