"""Scoping: the recipe and arguments of a task, the questions asked before they are known, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from app import errors
from app.domain import plans
from app.services.plans import requests
from tests.unit.services.plans import chores, given, plan_harness
from tests.unit.services.plans.plan_harness import task

NEEDS = plans.TaskState.NEEDS_SCOPING


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> plan_harness.Place:
    """Return a project for all harnesses, with a recipe that takes an argument found by the router."""
    made = plan_harness.Place(tmp_path_factory.mktemp("place"))
    schema = {
        "type": "object",
        "properties": {"page_path": {"type": "string"}, "inks": {"type": "integer", "maximum": 4}},
        "required": ["page_path"],
    }
    made.add_recipe({"recipe_id": "print", "label": "Print", "task_patterns": ["print "], "args_schema": schema})
    return made


async def only(harness: plan_harness.Harness, new: requests.NewTask) -> tuple[str, plans.Task]:
    """Create a plan of one task, and return its id and the task."""
    session_id = await harness.create(new)
    return session_id, await harness.task(session_id, 1)


async def test_the_router_chooses_and_fills_in(harness: plan_harness.Harness) -> None:
    """The router finds a recipe for the description, and adds arguments from it to the given ones."""
    _, found = await only(harness, task("print page 'a.md'", args={"inks": 2}))

    assert (found.recipe_id, found.routed, found.status.value) == ("print", True, "pending")
    assert found.args == {"page_path": "a.md", "inks": 2}
    assert found.scoping_question is None


async def test_no_recipe_is_asked_about(harness: plan_harness.Harness) -> None:
    """A task without a recipe gets a question that lists the recipes, and an answer that names one decides."""
    for answer in (
        requests.ScopingAnswer(answer="sweep the attic"),
        requests.ScopingAnswer(answer="sweep"),
        requests.ScopingAnswer(answer="the usual one", recipe_id="sweep"),
    ):
        session_id, asking = await only(harness, task("make it nice"))

        assert (asking.status, asking.asked_by) == (NEEDS, plans.BY_SYSTEM)
        assert "sweep (Do sweep)" in str(asking.scoping_question)
        assert "carry (Do carry)" in str(asking.scoping_question)

        plan = await harness.application.plans.answer(session_id, 1, answer)

        assert (plan.tasks[0].recipe_id, plan.tasks[0].status.value) == ("sweep", "pending")
        assert (plan.tasks[0].scoping_answer, plan.tasks[0].asks) == (answer.answer, False)


async def test_missing_arguments_are_asked_for(harness: plan_harness.Harness) -> None:
    """Missing arguments become a question with their descriptions, and an answer with arguments settles it."""
    session_id, asking = await only(harness, task("carry it"))

    assert (asking.recipe_id, asking.status, asking.asked_by) == ("carry", NEEDS, plans.BY_SYSTEM)
    expected = "The recipe carry (Do carry) needs these arguments: what (What is to be carried.)."
    assert asking.scoping_question == expected

    with pytest.raises(errors.ArgsInvalid) as refused:
        await harness.application.plans.answer(
            session_id, 1, requests.ScopingAnswer(answer="ten times", args={"times": "ten"})
        )

    assert [flaw.path for flaw in refused.value.flaws] == ["$.args.times"]
    assert await harness.task(session_id, 1) == asking

    plan = await harness.application.plans.answer(
        session_id, 1, requests.ScopingAnswer(answer="a box", args={"what": "a box"})
    )

    assert (plan.tasks[0].status.value, plan.tasks[0].args) == ("pending", {"what": "a box"})


async def test_an_answer_that_leaves_something_open_asks_on(harness: plan_harness.Harness) -> None:
    """Answered questions are kept before the next one, and the run gets the people's questions and answers."""
    session_id, first = await only(harness, task("make it nice", scoping_question="How nice?"))
    second = (await harness.application.plans.answer(session_id, 1, requests.ScopingAnswer(answer="very"))).tasks[0]
    third = (await harness.application.plans.answer(session_id, 1, requests.ScopingAnswer(answer="carry"))).tasks[0]
    done = (
        await harness.application.plans.answer(session_id, 1, requests.ScopingAnswer(answer="it", args={"what": "it"}))
    ).tasks[0]

    assert [each.asked_by for each in (first, second, third)] == [plans.BY_USER, plans.BY_SYSTEM, plans.BY_SYSTEM]
    assert [each.question for each in done.scoping_before] == [first.scoping_question, second.scoping_question]
    assert [each.answer for each in done.scoping_before] == ["very", "carry"]
    assert (done.scoping_question, done.scoping_answer) == (third.scoping_question, "it")
    assert (done.recipe_id, done.status.value) == ("carry", "pending")

    await harness.application.plans.approve(session_id)
    await harness.application.plans.start(session_id)
    plan = await harness.rested(session_id)
    told = (await harness.application.runs.reader.view(str(plan.tasks[0].run_id))).start.description

    assert told == "make it nice\n\nHow nice?\nvery\n\nit"


async def test_a_persons_question_comes_first(harness: plan_harness.Harness) -> None:
    """A person's question blocks a task with a known recipe until it is answered."""
    session_id, asking = await only(harness, task("sweep it", scoping_question="When?"))

    assert (asking.recipe_id, asking.status, asking.asked_by) == ("sweep", NEEDS, plans.BY_USER)

    plan = await harness.application.plans.answer(session_id, 1, requests.ScopingAnswer(answer="now"))

    assert (plan.tasks[0].status.value, plan.tasks[0].scoping_question) == ("pending", "When?")

    with pytest.raises(errors.WrongState):
        await harness.application.plans.answer(session_id, 1, requests.ScopingAnswer(answer="later"))


async def test_an_invalid_task_of_a_person_is_refused(harness: plan_harness.Harness) -> None:
    """Unknown recipes and wrong arguments are all refused with their places, and no plan is created."""
    wrong = [
        task("sweep it", recipe_id="swepe"),
        task("carry it", args={"what": 7, "wheels": 4}),
        task("make it nice"),
    ]
    with pytest.raises(errors.RequestInvalid) as refused:
        await harness.create(*wrong)

    assert given.places_and_codes(refused.value) == [
        ("$.tasks[0].recipe_id", "unknown_recipe"),
        ("$.tasks[1].args.wheels", "undeclared_arg"),
        ("$.tasks[1].args.what", "args_type"),
    ]
    assert refused.value.code == "tasks_invalid"
    assert (await harness.application.plans.page(plans.PlanQuery()))[0] == []


@pytest.mark.parametrize(
    ("wrong", "code", "path"),
    [
        ({"recipe_id": "swepe"}, "unknown_recipe", "$.recipe_id"),
        ({"args": {"wheels": 4}}, "args_invalid", "$.args.wheels"),
    ],
)
async def test_an_invalid_task_is_refused_with_its_own_code(
    harness: plan_harness.Harness, wrong: dict[str, Any], code: str, path: str
) -> None:
    """A wrong new task, or edit of one, is refused with the code that a request for a run would get."""
    session_id, _ = await only(harness, task("carry it", args={"what": "it"}))
    with pytest.raises(errors.RequestInvalid) as added:
        await harness.application.plans.add_task(session_id, task("carry it", **wrong))
    with pytest.raises(errors.RequestInvalid) as edited:
        await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(**wrong))

    assert [each.value.code for each in (added, edited)] == [code, code]
    assert path in [flaw.path for flaw in added.value.flaws]
    assert path in [flaw.path for flaw in edited.value.flaws]


async def test_unfitting_router_arguments_become_a_question(harness: plan_harness.Harness) -> None:
    """Arguments found by the router that do not fit become a question, not a refusal."""
    place = harness.place
    pattern = "/lay (?P<eggs>[0-9]+) eggs/"
    schema = {"type": "object", "properties": {"eggs": {"type": "integer", "maximum": 3}}}
    place.add_recipe({"recipe_id": "lay", "label": "Lay", "task_patterns": [pattern], "args_schema": schema})
    session_id, asking = await only(harness, task("lay 5 eggs"))

    assert (asking.recipe_id, asking.args, asking.status) == ("lay", {"eggs": 5}, NEEDS)
    assert "eggs" in str(asking.scoping_question)

    plan = await harness.application.plans.answer(
        session_id, 1, requests.ScopingAnswer(answer="three then", args={"eggs": 3})
    )

    assert (plan.tasks[0].args, plan.tasks[0].status.value) == ({"eggs": 3}, "pending")


async def test_other_words_are_routed_anew(harness: plan_harness.Harness) -> None:
    """A new description of a routed task is routed again, without arguments from the old one."""
    session_id, _ = await only(harness, task("print page 'a.md'", args={"inks": 2}))
    other = await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(description="print page 'b.md'"))

    assert other.tasks[0].args == {"page_path": "b.md", "inks": 2}

    nothing = await harness.application.plans.edit_task(
        session_id, 1, requests.TaskEdit(description="make it nice", args={})
    )

    assert (nothing.tasks[0].recipe_id, nothing.tasks[0].status) == (None, NEEDS)

    again = await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(description="sweep it"))

    assert (again.tasks[0].recipe_id, again.tasks[0].args, again.tasks[0].scoping_question) == ("sweep", {}, None)


async def test_a_recipe_that_was_given_stays(harness: plan_harness.Harness) -> None:
    """A recipe chosen by a person stays until the choice is returned to the router."""
    session_id, _ = await only(harness, task("sweep it", recipe_id="paint"))
    edited = await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(description="sweep all of it"))

    assert (edited.tasks[0].recipe_id, edited.tasks[0].routed) == ("paint", False)

    routed = await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(recipe_id=None))

    assert (routed.tasks[0].recipe_id, routed.tasks[0].routed) == ("sweep", True)


async def test_an_edit_can_take_a_question_back_or_ask_another(harness: plan_harness.Harness) -> None:
    """A person's question can be removed or replaced by an edit, and an answered one stays answered."""
    session_id, _ = await only(harness, task("sweep it", scoping_question="When?"))
    quiet = await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(scoping_question=None))

    assert (quiet.tasks[0].status.value, quiet.tasks[0].asked_by) == ("pending", None)

    asking = await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(scoping_question="Where?"))

    assert (asking.tasks[0].status, asking.tasks[0].asked_by) == (NEEDS, plans.BY_USER)

    answered = await harness.application.plans.answer(session_id, 1, requests.ScopingAnswer(answer="upstairs"))
    edit = requests.TaskEdit(dod="it shines", scoping_question="Where?")
    same = await harness.application.plans.edit_task(session_id, 1, edit)

    assert (same.tasks[0].dod, same.tasks[0].scoping_answer) == ("it shines", "upstairs")
    assert same.tasks[0].status is answered.tasks[0].status is plans.TaskState.PENDING


async def test_an_empty_edit_is_refused(harness: plan_harness.Harness) -> None:
    """An edit without a field, and blank or overlong texts, are refused with their places."""
    session_id, _ = await only(harness, task("sweep it"))
    told = []
    for edit in (
        requests.TaskEdit(),
        requests.TaskEdit(description=" "),
        requests.TaskEdit(dod="x" * (requests.DOD_CHARACTERS + 1)),
        requests.TaskEdit(scoping_question=""),
    ):
        with pytest.raises(errors.RequestInvalid) as refused:
            await harness.application.plans.edit_task(session_id, 1, edit)
        told += given.places_and_codes(refused.value)

    assert told == [
        ("$", "missing"),
        ("$.description", "missing"),
        ("$.dod", "invalid"),
        ("$.scoping_question", "missing"),
    ]


async def test_a_plan_as_a_whole_must_be(harness: plan_harness.Harness) -> None:
    """A plan without tasks, or with a wrong graph, folder, parent, label, priority or size, is refused with places."""
    wrong = [
        requests.NewPlan(),
        requests.NewPlan(intent=" "),
        requests.NewPlan(tasks=(task("sweep", 2), task("sweep", 1), task("sweep", 9))),
        requests.NewPlan(tasks=(task("sweep it"),), working_dir="../elsewhere"),
        requests.NewPlan(tasks=(task("sweep it"),), parent_run_id="20260210T143000Z-k3x9af"),
        requests.NewPlan(tasks=(task("sweep it"),), labels={"a b": "c"}, priority=101),
        requests.NewPlan(tasks=(task("sweep it"),) * (requests.TASKS + 1)),
    ]
    told = []
    for new in wrong:
        with pytest.raises(errors.RequestInvalid) as refused:
            await harness.application.plans.create(new)
        told.append(given.places_and_codes(refused.value))

    assert told == [
        [("$.intent", "missing")],
        [("$.intent", "missing")],
        [("$.tasks[2].deps[0]", "unknown_dependency"), ("$.tasks[0].deps[0]", "dependency_cycle")],
        [("$.working_dir", "working_dir_refused")],
        [("$.parent_run_id", "unknown_parent")],
        [("$.priority", "invalid"), ('$.labels["a b"]', "invalid")],
        [("$.tasks", "too_many_tasks")],
    ]


async def test_runs_start_plans_only_so_deep(harness: plan_harness.Harness) -> None:
    """The runs of a plan are one deeper than the run that asked for it, and a plan too deep is refused."""
    session_id = await harness.started(task("sweep it"))
    run_id = (await harness.rested(session_id)).tasks[0].run_id
    for depth in (1, 2, 3):
        session_id = await harness.started(task("sweep it"), parent_run_id=run_id)
        run_id = (await harness.rested(session_id)).tasks[0].run_id

        assert (await harness.application.runs.reader.view(str(run_id))).start.depth == depth

    with pytest.raises(errors.RequestInvalid) as refused:
        await harness.create(task("sweep it"), parent_run_id=run_id)

    assert refused.value.code == "depth_exceeded"


async def test_a_plan_stays_as_deep_as_it_was_made(harness: plan_harness.Harness) -> None:
    """The depth of a plan's runs stays the same after the run that asked for the plan is deleted."""
    run_id = None
    for _ in range(2):
        made = await harness.started(task("sweep it"), parent_run_id=run_id)
        run_id = str((await harness.rested(made)).tasks[0].run_id)
    session_id = await harness.create(task("sweep it"), parent_run_id=run_id)
    await harness.application.runs.delete(str(run_id))
    await harness.application.plans.approve(session_id)
    await harness.application.plans.start(session_id)
    last = (await harness.rested(session_id)).tasks[0].run_id

    assert (await harness.application.runs.reader.view(str(last))).start.depth == 2


async def test_a_repeated_request_finds_its_plan(harness: plan_harness.Harness) -> None:
    """A repeated request with the same key finds its plan, and another request with that key is a conflict."""
    new = requests.NewPlan(tasks=(task("sweep it"),), idempotency_key="k")
    made = [await harness.application.plans.create(new) for _ in range(2)]

    assert [each.existed for each in made] == [False, True]
    assert made[0].plan == made[1].plan

    with pytest.raises(errors.Conflict) as refused:
        await harness.application.plans.create(requests.NewPlan(tasks=(task("paint it"),), idempotency_key="k"))

    assert refused.value.code == "idempotency_conflict"
    assert len((await harness.application.plans.page(plans.PlanQuery()))[0]) == 1


async def test_pages_of_plans(harness: plan_harness.Harness) -> None:
    """Lists of plans come in pages that report whether more follow."""
    made = [await harness.create(task("sweep it"), idempotency_key=f"k{number}") for number in range(3)]
    first, more = await harness.application.plans.page(plans.PlanQuery(limit=2))
    last = (first[-1].created_at, first[-1].session_id)
    rest, none = await harness.application.plans.page(plans.PlanQuery(limit=2, cursor=last))

    assert (more, none) == (True, False)
    assert sorted(each.session_id for each in (*first, *rest)) == sorted(made)


@pytest.mark.parametrize("session_id", ["", "..", "a/b", "x" * 200, "sp_0"])
async def test_an_unknown_plan_is_not_found(harness: plan_harness.Harness, session_id: str) -> None:
    """An id that is not a plan's is not found."""
    with pytest.raises(errors.NotFound) as refused:
        await harness.show(session_id)

    assert refused.value.code == "plan_not_found"


async def test_a_repeated_answer_does_not_answer_the_next_question(harness: plan_harness.Harness) -> None:
    """A repeated answer does not answer the next question, unless it names a recipe that was added since."""
    session_id, _ = await only(harness, task("make it nice", scoping_question="How nice?"))
    asked = await harness.application.plans.answer(session_id, 1, requests.ScopingAnswer(answer="late"))

    assert await harness.application.plans.answer(session_id, 1, requests.ScopingAnswer(answer="late")) == asked
    assert [each.answer for each in asked.tasks[0].scoping_before] == ["late"]

    harness.place.add_recipe(chores.recipe("late"))
    named = await harness.application.plans.answer(session_id, 1, requests.ScopingAnswer(answer="late"))
    harness.place.remove_recipe("late")

    assert named.tasks[0].recipe_id == "late"


async def test_an_insufficient_answer_repeats_the_question(harness: plan_harness.Harness) -> None:
    """An answer that does not settle the question asks it again with the reason."""
    session_id, asking = await only(harness, task("make it nice"))
    again = (
        await harness.application.plans.answer(session_id, 1, requests.ScopingAnswer(answer="I do not know"))
    ).tasks[0]
    third = (await harness.application.plans.answer(session_id, 1, requests.ScopingAnswer(answer="nor do I"))).tasks[0]
    named = (await harness.application.plans.answer(session_id, 1, requests.ScopingAnswer(answer="print"))).tasks[0]
    unnamed = (
        await harness.application.plans.answer(session_id, 1, requests.ScopingAnswer(answer="the long one"))
    ).tasks[0]

    for task_, said in ((again, "I do not know"), (third, "nor do I")):
        assert str(task_.scoping_question).startswith(f"The answer '{said}' names no recipe")
        assert str(task_.scoping_question).endswith(str(asking.scoping_question))
    assert not str(named.scoping_question).startswith("The answer")
    assert (
        str(unnamed.scoping_question)
        == f"The answer 'the long one' gives no value of page_path. {named.scoping_question}"
    )
