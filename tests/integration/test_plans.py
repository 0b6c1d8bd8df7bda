"""Session plans on real files: continued by later services, and in the process of a command."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from app import bootstrap
from app.domain import plans
from app.services.plans import requests
from tests.integration import planning, served
from tests.integration.project import Project
from tests.unit.services.plans import chores

SERVE = bootstrap.OpenMode(address="http://127.0.0.1:8000")
COMMAND = bootstrap.OpenMode(alone=True)

CHAIN = tuple(
    requests.NewTask(description=f"sweep room {number}", deps=(number - 1,) if number > 1 else ())
    for number in range(1, 4)
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose recipes are chores."""
    return planning.make_project(tmp_path / "project")


@contextlib.asynccontextmanager
async def life(
    project: Project, toolbox: chores.Toolbox, use: bootstrap.OpenMode = SERVE
) -> AsyncIterator[bootstrap.Application]:
    """Build the application of a project, as the service or as a command, and close it without a grace period."""
    chosen = served.chosen(project, stop_grace_seconds=0.0)
    async with bootstrap.build(chosen, use, chores.platform(toolbox)) as application:
        yield application


async def started(application: bootstrap.Application) -> str:
    """Create and start a plan of three tasks, each dependent on the one before."""
    session_id = (await application.plans.create(requests.NewPlan(tasks=CHAIN))).plan.session_id
    await application.plans.approve(session_id)
    await application.plans.start(session_id)
    return session_id


async def ends(application: bootstrap.Application, session_id: str) -> plans.Plan:
    """Wait until a plan has ended."""
    return await until(
        application, session_id, lambda plan: plan.status in (plans.PlanState.DONE, plans.PlanState.FAILED)
    )


async def runs(application: bootstrap.Application, session_id: str, number: int) -> plans.Plan:
    """Wait until a task of a plan runs and the plan names its run."""
    return await until(application, session_id, lambda plan: plan.tasks[number - 1].run_id is not None)


async def until(application: bootstrap.Application, session_id: str, holds: Callable[[plans.Plan], bool]) -> plans.Plan:
    """Poll until a condition is true for a plan."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        plan = await application.plans.show(session_id)
        while not holds(plan):
            plan = await application.plans.wait(session_id, 5, plan.revision)
    return plan


async def test_an_interrupted_plan_is_completed_by_the_next_service(project: Project) -> None:
    """A task that runs when a service stops is completed by the next service, which continues the plan by itself."""
    toolbox = chores.Toolbox()
    toolbox.hold(2)
    async with life(project, toolbox) as application:
        session_id = await started(application)
        await toolbox.begun(2)
        # The run begins before the plan names it.
        await runs(application, session_id, 2)
    file = project.data / "sessions" / session_id / "plan.json"
    left = json.loads(file.read_text(encoding="utf-8"))
    toolbox.release(2)
    async with life(project, toolbox) as application:
        plan = await ends(application, session_id)

    assert [task["status"] for task in left["tasks"]] == ["done", "running", "blocked"]
    assert plan.status is plans.PlanState.DONE
    assert plan.tasks[1].run_id == left["tasks"][1]["run_id"]
    assert [len(toolbox.tries(number, chores.FETCH)) for number in (1, 2, 3)] == [1, 1, 1]
    assert json.loads(file.read_text(encoding="utf-8")) == plan.to_json()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_command_completes_only_the_named_plan(project: Project) -> None:
    """Without a service, a command completes the named interrupted plan, and no other plan."""
    toolbox = chores.Toolbox()
    toolbox.hold(1)
    async with life(project, toolbox) as application:
        session_id, other = await started(application), await started(application)
        for each in (session_id, other):
            await runs(application, each, 1)
    toolbox.release(1)
    async with life(project, toolbox, COMMAND) as application:
        async with asyncio.timeout(served.WAIT_SECONDS):
            plan = await application.plans.rested(session_id)
        waiting = await application.plans.show(other)

    assert plan.status is plans.PlanState.DONE
    assert waiting.status is plans.PlanState.RUNNING
    assert [task.status.value for task in waiting.tasks] == ["running", "blocked", "blocked"]

    async with life(project, toolbox) as application:
        assert (await ends(application, other)).status is plans.PlanState.DONE


async def test_looking_at_plans_takes_no_lock(project: Project) -> None:
    """A command lists and shows plans beside a service, and starts no task."""
    toolbox = chores.Toolbox()
    toolbox.hold(1)
    async with life(project, toolbox) as application:
        session_id = await started(application)
        await runs(application, session_id, 1)
        async with life(project, toolbox, bootstrap.OpenMode(look_only=True)) as beside:
            found, _ = await beside.plans.page(plans.PlanQuery())
            shown = await beside.plans.show(session_id)
            rested = await beside.plans.rested(session_id)
        toolbox.release(1)

        assert (await ends(application, session_id)).status is plans.PlanState.DONE

    assert [each.session_id for each in found] == [session_id]
    assert found[0].tasks == {"running": 1, "blocked": 2}
    assert rested == shown


@pytest.mark.slow
async def test_forty_unfinished_plans_continue_at_a_start(project: Project) -> None:
    """A service with forty unfinished plans is ready at once, and completes all of them."""
    toolbox = chores.Toolbox()
    async with life(project, toolbox) as application:
        made = [(await application.plans.create(requests.NewPlan(tasks=CHAIN[:1]))).plan for _ in range(40)]
        for plan in made:
            await application.plans.approve(plan.session_id)
    for plan in made:
        file = project.data / "sessions" / plan.session_id / "plan.json"
        file.write_text(file.read_text().replace('"approved"', '"running"'))
    async with life(project, toolbox) as application:
        assert (await application.health.ready()).status == "ready"

        done = [await ends(application, plan.session_id) for plan in made]

    assert {plan.status for plan in done} == {plans.PlanState.DONE}
    assert len(toolbox.performed) == 2 * len(made)


async def test_outputs_of_earlier_tasks_over_http(project: Project) -> None:
    """An argument that names an output is refused at an invalid place, and otherwise read when its task begins."""
    said = {"$task": "t1", "output": "work.said"}
    async with planning.in_process(project) as planned:
        aside = planning.task("carry it", recipe_id="carry", args={"what": [said, {"$task": 1}]})
        problem = planning.refused(await planned.ask(planning.task("sweep room 1"), aside), 400, "tasks_invalid")
        assert [(flaw["path"], flaw["code"]) for flaw in problem["flaws"]] == [
            ("$.tasks[1].args.what[0].$task", "not_a_dependency"),
            ("$.tasks[1].args.what[1]", "invalid"),
        ]

        plan = await planned.plan(
            planning.task("sweep room 1"), planning.task("carry it", 1, recipe_id="carry", args={"what": said})
        )
        planning.refused(await planned.edit(plan, 2, deps=[]), 400, "tasks_invalid", "$.args.what.$task")
        planning.refused(await planned.edit(plan, 2, args={"what": {"$task": 7, "path": "x"}}), 400, "tasks_invalid")
        await planned.do(plan, "approve")
        await planned.do(plan, "start")
        ended = await planned.ends(plan)

        assert planning.the(ended, 2)["args"]["what"] == said
        assert {task: args["what"] for task, _, args in planned.toolbox.asked if task == 2} == {2: "work of 1"}


async def test_a_task_is_done_when_its_file_is_there(project: Project) -> None:
    """A check of a file reads the workspace of the task's run; if the file is written later, a retry finds it."""
    async with planning.in_process(project) as planned:
        wanted = {"check": "file_exists", "path": "Drafts/room 1.md"}
        planning.refused(
            await planned.ask(planning.task("sweep room 1", dod=[{"check": "file_exists"}])),
            400,
            "request_invalid",
            "$.tasks[0].dod[0].path",
        )
        plan = await planned.started(planning.task("sweep room 1", dod=[wanted]))
        failed = planning.the(await planned.ends(plan, "failed"), 1)
        assert failed["error"]["code"] == "task_dod_failed"
        assert failed["error"]["detail"]["failed_checks"][0]["message"] == "there is no file Drafts/room 1.md"

        project.write("Drafts/room 1.md", "swept")
        await planned.do(plan, "retry", 1)
        ended = planning.the(await planned.ends(plan), 1)
        assert (ended["run_id"], ended["dod"]) == (failed["run_id"], [wanted])
