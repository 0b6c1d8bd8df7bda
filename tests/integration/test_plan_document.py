"""Session plans over HTTP, as specified: structure, task states, user controls, the shape of the file.

Each part is named for the part of execution-modes that contains its lines.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration import asking, asking_dialect, planning, served
from tests.integration.planning import Planned, added, refused, states, sweeping, task, the
from tests.integration.project import Project
from tests.unit.services.plans import chores

CARRY = task("carry the shelf", args={"what": "shelf"})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose recipes are chores."""
    return planning.make_project(tmp_path / "project")


@pytest.fixture
async def service(project: Project) -> AsyncIterator[Planned]:
    """Return the service of the project, in process."""
    async with planning.in_process(project) as service:
        yield service


def letter(session_id: str, *tasks: dict[str, Any], **fields: Any) -> str:
    """Return a plan as in appendix G, without the service's own fields."""
    plan = {"session_id": session_id, "created_by": "chief", "status": "draft", "created_at": "2026-02-10T14:00:00Z"}
    return json.dumps(plan | fields | {"tasks": list(tasks)})


def lettered(number: int, *deps: int, **fields: Any) -> dict[str, Any]:
    """Return a task as in appendix G."""
    usual = {"recipe_id": "sweep", "dod": "It is clean", "status": "pending", "run_id": None}
    return {"id": number, "description": f"sweep room {number}", "deps": list(deps)} | usual | fields


# -- G, storage and shape


async def test_storage(service: Planned) -> None:
    """A plan is stored in `.control-room/sessions/{session_id}/plan.json`, and answers equal the file."""
    plan = await service.plan(*sweeping(2), intent="A clean house")

    assert service.file(plan).is_file()
    assert service.kept(plan) == plan == await service.shown(plan)
    assert [path.name for path in service.file(plan).parent.iterdir()] == ["plan.json"]


async def test_the_file_is_made_for_editing(service: Planned) -> None:
    """A plan's file has a line for each field, so that it can be edited by hand and compared."""
    plan = await service.plan(*sweeping(2), intent="A clean house")

    assert '  "intent": "A clean house",' in service.file(plan).read_text("utf-8").splitlines()


async def test_shape(service: Planned) -> None:
    """A plan has the fields of the appendix; a plan of tasks is a user's draft, and its id begins with `sp_`."""
    plan = await service.plan(task("sweep the hall", dod="It is clean"), task("sweep the stairs", 1))
    first, second = plan["tasks"]

    assert (plan["created_by"], plan["status"], plan["session_id"][:3]) == ("user", "draft", "sp_")
    assert first | second | {"id": 2, "description": "sweep the stairs", "deps": [1], "dod": ""} == second
    assert (first["id"], first["recipe_id"], first["deps"], first["dod"]) == (1, "sweep", [], "It is clean")
    assert (first["status"], second["status"], first["run_id"]) == ("pending", "blocked", None)
    assert plan["created_at"].endswith("Z")


async def test_shape_written_by_hand(project: Project) -> None:
    """A file as in the appendix is listed, shown and executed; unknown fields in it are kept."""
    tasks = [
        lettered(1, status="done", run_id="run_abc"),
        lettered(2, 1, status="blocked", note="mine"),
        lettered(3, 1, 2, status="blocked"),
        lettered(4, description="xyzzy", recipe_id=None, status="needs_scoping", scoping_question="Which rooms?"),
    ]
    for each in tasks[2:]:
        del each["dod"]
    project.write(".control-room/sessions/by-hand/plan.json", letter("by-hand", *tasks, colour="blue"))
    async with planning.in_process(project) as service:
        plan: dict[str, Any] = {"session_id": "by-hand"}
        shown = await service.shown(plan)
        (listed,) = (await service.http.get("/api/sessions")).json()
        await service.do(plan, "approve")
        await service.do(plan, "start")
        await service.comes_to(plan, "done", "done", "done", "needs_scoping", status="running")
        await service.do(plan, "answer", 4, answer="sweep all of them")
        ended = await service.ends(plan)

    assert listed["session_id"] == "by-hand"
    assert states(shown) == {1: "done", 2: "blocked", 3: "blocked", 4: "needs_scoping"}
    assert (the(shown, 4)["scoping_question"], the(shown, 3)["dod"]) == ("Which rooms?", "")
    assert (ended["colour"], the(ended, 2)["note"], the(ended, 1)["run_id"]) == ("blue", "mine", "run_abc")
    assert service.kept(plan) == ended


async def test_shape_of_a_running_plan_written_by_hand(project: Project) -> None:
    """A service continues a plan whose file contains `running`, as one of an earlier service."""
    tasks = [lettered(1, status="done", run_id="run_abc"), lettered(2, 1, status="blocked")]
    project.write(".control-room/sessions/by-hand/plan.json", letter("by-hand", *tasks, status="running"))
    async with planning.in_process(project) as service:
        ended = await service.ends({"session_id": "by-hand"})
        runs = await service.runs_of(ended)

    assert states(ended) == {1: "done", 2: "done"}
    assert [run["task"]["session_plan_task_id"] for run in runs] == [2]


# -- G, connection to runs


async def test_each_task_is_one_run(service: Planned) -> None:
    """The run of a task is like any other: listed, of the plan's session, and it names its task."""
    plan = await service.started(task("sweep the hall"), CARRY, labels={"book": "one"}, priority=3)
    ended = await service.ends(plan)
    runs = {run["run_id"]: run for run in await service.runs_of(plan)}

    assert {each["run_id"] for each in ended["tasks"]} == runs.keys()
    for each in ended["tasks"]:
        run = runs[each["run_id"]]
        told = (run["task"]["session_plan_task_id"], run["task"]["description"], run["recipe_id"], run["status"])
        assert told == (each["id"], each["description"], each["recipe_id"], "done")
        assert (run["labels"], run["priority"]) == ({"book": "one"}, 3)
    assert runs[the(ended, 2)["run_id"]]["task"]["initial_args"] == {"what": "shelf", "times": 1}


async def test_a_pending_task_is_begun(service: Planned) -> None:
    """A pending task of a running plan gets a run at once, and `run_id` names the run."""
    service.toolbox.hold(1, 2)
    plan = await service.started(task("sweep the hall"), task("paint the door", 1))
    await service.toolbox.begun(1)
    first = await service.comes_to(plan, "running", "blocked")
    service.toolbox.release(1)
    await service.toolbox.begun(2)
    second = await service.comes_to(plan, "done", "running")
    service.toolbox.release(2)
    ended = await service.ends(plan)

    assert the(first, 1)["run_id"] == the(ended, 1)["run_id"]
    assert (the(first, 2)["run_id"], the(second, 2)["run_id"]) == (None, the(ended, 2)["run_id"])
    assert len(await service.runs_of(plan)) == 2


async def test_independent_tasks_run_together(project: Project) -> None:
    """Independent tasks run together, in the order of the list, as many as the capacity allows."""
    async with planning.in_process(project, max_running=2) as service:
        service.toolbox.hold(1, 2, 3, 4)
        plan = await service.started(*sweeping(4))
        await service.toolbox.begun(1, 2)
        full = await service.comes_to(plan, "running", "running", "pending", "pending")
        service.toolbox.release(2)
        await service.toolbox.begun(3)
        await service.comes_to(plan, "running", "done", "running", "pending")
        service.toolbox.release(1, 3, 4)
        await service.ends(plan)

    assert [the(full, number)["run_id"] for number in (3, 4)] == [None, None]
    assert service.toolbox.busiest == 2


# -- Mode B, what agents receive


async def test_agents_see_their_task_alone(tmp_path: Path) -> None:
    """A prompt of a task's run contains its own description and answers, but no part of the plan or other tasks."""
    project = Project(tmp_path / "project")
    args = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
    tasks = [
        task("Sketch scene of the harbour", args=args, dod="Looks like the sea"),
        task("Sketch scene of the lantern", 1, args=args, scoping_question="Is it lit?"),
    ]
    async with served.in_process(project) as plain:
        service = Planned(project, plain.http, chores.Toolbox())
        plan = await service.plan(*tasks, intent="A book about light", review="off")
        await service.do(plan, "answer", 2, answer="No, it is dark.")
        await service.do(plan, "approve")
        await service.do(plan, "start")
        ended = await service.ends(plan)
        logs = [project.data / "runs" / each["run_id"] / "logs" / "draft.1.prompt.md" for each in ended["tasks"]]
        harbour, lantern = (log.read_text(encoding="utf-8") for log in logs)

    assert "harbour" in harbour
    assert {"lantern", "Is it lit?", "Looks like the sea", "book about light"}.isdisjoint(_found(harbour))
    assert _found(lantern) == {"lantern", "Is it lit?", "No, it is dark."}


def _found(prompt: str) -> set[str]:
    words = ("harbour", "lantern", "Is it lit?", "No, it is dark.", "Looks like the sea", "book about light", "sp_")
    return {word for word in words if word in prompt}


# -- Task states


async def test_pending_when_all_deps_are_satisfied(service: Planned) -> None:
    """A task without dependencies, and one whose dependencies are done, is ready to run."""
    plan = await service.started(task("sweep the hall"), task("sweep the stairs", 1))
    await service.ends(plan)
    paused = added(await service.add(plan, task("sweep the yard", 1, 2)))

    assert (paused["status"], states(paused)) == ("paused", {1: "done", 2: "done", 3: "pending"})


async def test_blocked_waits_for_its_dependencies(service: Planned) -> None:
    """A task is blocked, and does not run, while one of its dependencies is not done."""
    service.toolbox.hold(1, 2)
    plan = await service.started(task("sweep the hall"), task("sweep the stairs"), task("paint the door", 1, 2))
    await service.toolbox.begun(1, 2)
    service.toolbox.release(1)
    await service.comes_to(plan, "done", "running", "blocked")
    service.toolbox.release(2)
    await service.ends(plan)
    begun = [number for number, *_ in service.toolbox.asked]

    assert begun[-1] == 3


async def test_needs_scoping_before_it_can_be_routed(service: Planned) -> None:
    """A task without a fitting recipe asks for one and does not start, and the other tasks run."""
    plan = await service.started(planning.NOT_A_TASK, task("sweep the hall"))
    stuck = await service.comes_to(plan, "needs_scoping", "done", status="running")
    unknown = the(stuck, 1)

    assert (unknown["recipe_id"], unknown["asked_by"], unknown["run_id"]) == (None, "system", None)
    assert all(recipe["recipe_id"] in unknown["scoping_question"] for recipe in chores.RECIPES)
    assert all(recipe["label"] in unknown["scoping_question"] for recipe in chores.RECIPES)


async def test_needs_scoping_for_missing_arguments(service: Planned) -> None:
    """A task whose recipe needs a missing argument asks for it, by name and purpose."""
    plan = await service.plan(task("carry it upstairs"))
    unknown = the(plan, 1)

    assert (unknown["status"], unknown["recipe_id"], unknown["asked_by"]) == ("needs_scoping", "carry", "system")
    assert "what" in unknown["scoping_question"]
    assert "What is to be carried." in unknown["scoping_question"]
    assert "times" not in unknown["scoping_question"]


async def test_running_while_its_run_is_not_at_its_end(service: Planned) -> None:
    """A task is running from the start of its run to its end, also while the run is paused."""
    service.toolbox.hold(1)
    plan = await service.started(task("sweep the hall"))
    await service.toolbox.begun(1)
    running = await service.comes_to(plan, "running")
    run_id = the(running, 1)["run_id"]
    paused = await service.http.post(f"/api/runs/{run_id}/pause")
    still = await service.shown(plan)
    await service.http.post(f"/api/runs/{run_id}/unpause")
    service.toolbox.release(1)
    ended = await service.ends(plan)

    assert paused.status_code == 200
    assert (the(running, 1)["started_at"] is not None, the(running, 1)["ended_at"]) == (True, None)
    assert states(still) == {1: "running"}
    assert the(ended, 1)["ended_at"] >= the(running, 1)["started_at"]


@pytest.mark.parametrize(("decision", "ending"), [("approve", "done"), ("deny", "failed")])
async def test_running_while_a_person_is_asked(project: Project, decision: str, ending: str) -> None:
    """A task whose run waits at a gate is running, also after a restart; others run, and the answer ends it."""
    asking.add(project, "ship", {"gate": "ship", "prompt": "Ship it?"})
    toolbox = chores.Toolbox()
    platform = chores.platform(toolbox)
    platform = dataclasses.replace(platform, dialects={**platform.dialects, "asking": asking_dialect.ASKING})
    async with planning.in_process(project, toolbox, platform) as service:
        plan = await service.started(task("ask", recipe_id="ship"), task("sweep the hall"), task("paint it", 1))
        before = await service.comes_to(plan, "running", "done", "blocked")
        await service.until(the(before, 1)["run_id"], "waiting")
    async with planning.in_process(project, toolbox, platform) as service:
        await service.until(the(before, 1)["run_id"], "waiting")
        after = await service.shown(plan)
        (gate,) = (await service.http.get("/api/gates")).json()
        await service.http.post(f"/api/gates/{gate['gate_id']}", json={"decision": decision})
        ended = await service.ends(plan, ending)

    assert states(after) == {1: "running", 2: "done", 3: "blocked"}
    assert states(ended) == {1: ending, 2: "done", 3: "done" if ending == "done" else "blocked"}


async def test_done_when_its_definition_of_done_is_satisfied(tmp_path: Path) -> None:
    """A task is done when the checks of its recipe pass; otherwise it fails, and an issue is created."""
    project = Project(tmp_path / "project")
    scenes = {"scene_path": "Story/Scenes/SCN-the-arrival.md", "other_path": "Story/Scenes/SCN-the-bridge.md"}
    async with served.in_process(project) as plain:
        service = Planned(project, plain.http, chores.Toolbox())
        good = await service.started(task("Sketch scene", args={"scene_path": scenes["scene_path"]}))
        bad = await service.started(task("compare the scenes", args=scenes))
        done, failed = await service.ends(good), await service.ends(bad, "failed")
        issues = (await service.http.get("/api/issues")).json()

    assert (states(done), states(failed)) == ({1: "done"}, {1: "failed"})
    assert [(issue["kind"], issue["session_id"]) for issue in issues] == [("dod", bad["session_id"])]
    assert issues[0]["run_id"] == the(failed, 1)["run_id"]
    assert the(failed, 1)["error"]["code"]


async def test_failed_for_another_reason_opens_one_issue(service: Planned) -> None:
    """A task whose run failed otherwise shows the reason, and one issue of kind `task` is linked to run and session."""
    service.toolbox.fail(1)
    plan = await service.started(task("sweep the hall"))
    failed = await service.ends(plan, "failed")
    run = await service.show(the(failed, 1)["run_id"])
    issues = (await service.http.get("/api/issues")).json()

    assert the(failed, 1)["error"] == run["error"]
    assert [(issue["kind"], issue["run_id"], issue["session_id"]) for issue in issues] == [
        ("task", run["run_id"], plan["session_id"])
    ]


async def test_no_issue_of_a_task_reveals_a_secret(tmp_path: Path) -> None:
    """The issue of a failed task contains its arguments without secrets, also in shortened texts."""
    token = "sesame-that-nobody-may-read"
    project = planning.make_project(tmp_path / "project")
    async with planning.in_process(project, api_token=token) as service:
        service.http.headers["Authorization"] = f"Bearer {token}"
        service.toolbox.fail(1)
        await service.ends(await service.started(task(f"sweep the hall {'. ' * 82}{token}")), "failed")
        (listed,) = (await service.http.get("/api/issues")).json()
        shown = await service.http.get(f"/api/issues/{listed['issue_id']}")

    assert "sesame" not in shown.text
    assert "sweep the hall" in listed["title"]
    assert "***" in shown.json()["body"]


async def test_cancelled_run_fails_its_task(service: Planned) -> None:
    """A run that a person cancels fails its task, without an issue."""
    service.toolbox.hold(1)
    plan = await service.started(task("sweep the hall"))
    await service.toolbox.begun(1)
    run_id = the(await service.comes_to(plan, "running"), 1)["run_id"]
    await service.http.post(f"/api/runs/{run_id}/cancel")
    failed = await service.ends(plan, "failed")
    issues = (await service.http.get("/api/issues")).json()

    assert states(failed) == {1: "failed"}
    assert issues == []


async def test_a_failed_task_blocks_only_its_dependents(service: Planned) -> None:
    """Tasks that depend on a failed task, directly or not, remain blocked; all others run to their end."""
    service.toolbox.fail(1)
    plan = await service.started(
        task("sweep the hall"),
        task("paint the hall", 1),
        task("paint the stairs", 2),
        task("sweep the yard"),
        task("paint the fence", 4),
    )
    failed = await service.ends(plan, "failed")

    assert states(failed) == {1: "failed", 2: "blocked", 3: "blocked", 4: "done", 5: "done"}
    assert {number for number, *_ in service.toolbox.performed} == {1, 4, 5}


# -- User controls


async def test_approve_and_start(service: Planned) -> None:
    """No task runs before a plan is approved and started; a draft cannot be started, and a second start is refused."""
    service.toolbox.hold(1)
    plan = await service.plan(task("sweep the hall"))
    early = await service.call(plan, "start")
    approved = await service.do(plan, "approve")
    again = await service.call(plan, "approve")
    started = await service.do(plan, "start")
    await service.toolbox.begun(1)
    running = await service.comes_to(plan, "running")
    twice = await service.do(plan, "start")
    service.toolbox.release(1)
    await service.ends(plan)

    refused(early, 409, "wrong_state")
    refused(again, 409, "wrong_state")
    assert (approved["status"], started["status"]) == ("approved", "running")
    assert twice == running
    assert len(await service.runs_of(plan)) == 1


async def test_pause_and_resume_at_task_boundaries(service: Planned) -> None:
    """During a pause, running tasks end and no task begins; a resume continues with the next."""
    service.toolbox.hold(1)
    plan = await service.started(task("sweep the hall"), task("paint the hall", 1))
    await service.toolbox.begun(1)
    paused = await service.do(plan, "pause")
    service.toolbox.release(1)
    boundary = await service.comes_to(plan, "done", "pending", status="paused")
    runs = await service.runs_of(plan)
    again = await service.call(plan, "pause")
    resumed = await service.do(plan, "resume")
    ended = await service.ends(plan)

    assert states(paused) == {1: "running", 2: "blocked"}
    assert [run["status"] for run in runs] == ["done"]
    refused(again, 409, "wrong_state")
    assert (resumed["status"], states(ended)) == ("running", {1: "done", 2: "done"})
    assert boundary["status"] == "paused"


@pytest.mark.parametrize("verb", ["pause", "resume", "start"])
async def test_an_order_to_a_draft_is_refused_before_its_approval(service: Planned, verb: str) -> None:
    """A draft must be approved first; another order is a 409 that names the state of the plan."""
    plan = await service.plan(task("sweep the hall"))
    problem = refused(await service.call(plan, verb), 409, "wrong_state")

    assert "draft" in problem["detail"]
    assert await service.shown(plan) == plan


async def test_reorder_within_dependencies(service: Planned) -> None:
    """Tasks begin in a changed order; an order before dependencies, or without all tasks, is refused."""
    plan = await service.plan(task("sweep the hall"), task("paint the hall", 1), task("sweep the yard"))
    reordered = planning.answered(await service.order(plan, 3, 1, 2), 200)
    broken = await service.order(plan, 3, 2, 1)
    short, twice = await service.order(plan, 3, 1), await service.order(plan, 3, 1, 2, 2)
    unknown = await service.order(plan, 3, 1, 9)

    assert [each["id"] for each in reordered["tasks"]] == [3, 1, 2]
    refused(broken, 400, "order_breaks_dependency")
    assert [(flaw["path"], flaw["code"]) for flaw in broken.json()["flaws"]] == [
        ("$.order[1]", "order_breaks_dependency")
    ]
    for answer in (short, twice, unknown):
        assert answer.status_code == 400, answer.text
        assert all(flaw["path"].startswith("$.order") for flaw in answer.json()["flaws"])
    assert await service.shown(plan) == reordered


async def test_the_order_is_the_order_of_beginning(project: Project) -> None:
    """With a capacity of one, tasks begin in the order of the list, not of their numbers."""
    async with planning.in_process(project, max_running=1) as service:
        plan = await service.plan(*sweeping(3))
        await service.order(plan, 3, 1, 2)
        await service.do(plan, "approve")
        await service.do(plan, "start")
        await service.ends(plan)

    assert [number for number, *_ in service.toolbox.asked] == [3, 1, 2]


async def test_add_a_task(service: Planned) -> None:
    """A task that is added to a running plan gets the next number and begins; numbers are never reused."""
    service.toolbox.hold(1)
    plan = await service.started(*sweeping(2))
    await service.toolbox.begun(1)
    first = added(await service.add(plan, task("paint the hall", 1)))
    await service.remove(plan, 3)
    second = added(await service.add(plan, task("paint the yard", 1)))
    service.toolbox.release(1)
    ended = await service.ends(plan)

    assert states(first)[3] == "blocked"
    assert [each["id"] for each in second["tasks"]] == [1, 2, 4]
    assert states(ended) == {1: "done", 2: "done", 4: "done"}


async def test_edit_a_task(service: Planned) -> None:
    """All fields of a task can change before it begins; a new description is routed again, a chosen recipe stays."""
    plan = await service.plan(task("sweep the hall"), task("whatever", recipe_id="paint"))
    routed = planning.answered(await service.edit(plan, 1, description="paint the hall", dod="Blue"), 200)
    chosen = planning.answered(await service.edit(plan, 2, description="sweep the yard", deps=[1]), 200)
    lost = planning.answered(await service.edit(plan, 1, description="xyzzy"), 200)

    assert (the(routed, 1)["recipe_id"], the(routed, 1)["dod"]) == ("paint", "Blue")
    assert (the(chosen, 2)["recipe_id"], the(chosen, 2)["deps"], states(chosen)[2]) == ("paint", [1], "blocked")
    assert (states(lost)[1], the(lost, 1)["recipe_id"]) == ("needs_scoping", None)


async def test_a_new_description_drops_what_only_the_old_recipe_took(service: Planned) -> None:
    """A new description that changes the recipe removes the arguments that only the old recipe accepted."""
    plan = await service.plan(task("carry it upstairs"))
    await service.do(plan, "answer", 1, answer="The piano.", args={"what": "piano"})
    edited = planning.answered(await service.edit(plan, 1, description="paint it"), 200)

    assert (states(edited)[1], the(edited, 1)["recipe_id"], the(edited, 1)["args"]) == ("pending", "paint", {})


async def test_begun_tasks_are_not_edited(service: Planned) -> None:
    """An edit of a running or done task is a 409 `task_begun`; an edited failed task runs as edited in a retry."""
    service.toolbox.hold(1)
    service.toolbox.fail(2)
    plan = await service.started(*sweeping(3))
    await service.toolbox.begun(1)
    await service.comes_to(plan, "running", "failed", "done")
    running, done = await service.edit(plan, 1, description="x"), await service.edit(plan, 3, dod="x")
    removed = await service.remove(plan, 1)
    failed = planning.answered(await service.edit(plan, 2, description="paint the wall"), 200)
    service.toolbox.mend(2)
    await service.do(plan, "retry", 2)
    service.toolbox.release(1)
    ended = await service.ends(plan)

    refused(running, 409, "task_begun")
    refused(done, 409, "task_begun")
    refused(removed, 409, "task_begun")
    assert the(failed, 2)["description"] == "paint the wall"
    assert [said for number, said, _ in service.toolbox.asked if number == 2] == ["sweep room 2", "paint the wall"]
    assert (the(ended, 2)["attempt"], len(the(ended, 2)["earlier_runs"])) == (2, 1)


async def test_remove_a_task(service: Planned) -> None:
    """A task is removed unless another one depends on it, which is a 409 that names the other."""
    plan = await service.plan(task("sweep the hall"), task("paint the hall", 1), task("sweep the yard"))
    needed = refused(await service.remove(plan, 1), 409, "task_needed")
    left = planning.answered(await service.remove(plan, 2), 200)
    last = planning.answered(await service.remove(plan, 1), 200)
    gone = await service.remove(plan, 1)

    assert "2" in json.dumps(needed)
    assert ([*states(left)], [*states(last)]) == ([1, 3], [3])
    refused(gone, 404, "task_not_found")


async def test_answer_scoping_questions(service: Planned) -> None:
    """An answer continues a task: it is routed by description and answer, and its run receives both."""
    plan = await service.started(task("sweep it", scoping_question="Which room?"), planning.NOT_A_TASK)
    await service.comes_to(plan, "needs_scoping", "needs_scoping", status="running")
    await service.do(plan, "answer", 1, answer="The attic.")
    await service.comes_to(plan, "done", "needs_scoping")
    await service.do(plan, "answer", 2, answer="paint the boat")
    ended = await service.ends(plan)
    told = {number: said for number, said, _ in service.toolbox.asked}

    assert (the(ended, 1)["scoping_answer"], the(ended, 1)["asked_by"]) == ("The attic.", "user")
    assert all(words in told[1] for words in ("sweep it", "Which room?", "The attic."))
    assert the(ended, 2)["recipe_id"] == "paint"
    assert "paint the boat" in told[2]


async def test_an_answer_that_leaves_something_open(service: Planned) -> None:
    """Open points of an answer become the next question; the answered one is kept before it."""
    plan = await service.plan(planning.NOT_A_TASK)
    asked = await service.do(plan, "answer", 1, answer="carry something")
    still = the(asked, 1)
    known = await service.do(plan, "answer", 1, answer="The piano.", args={"what": "piano", "times": 2})
    ready = the(known, 1)

    assert (still["status"], still["recipe_id"], still["scoping_answer"]) == ("needs_scoping", "carry", None)
    assert "what" in still["scoping_question"]
    assert [each["answer"] for each in still["scoping_before"]] == ["carry something"]
    assert (ready["status"], ready["args"]) == ("pending", {"what": "piano", "times": 2})


async def test_an_answer_names_the_recipe(service: Planned) -> None:
    """An answer may choose the recipe itself; an unknown one is refused with its place, and the question stays."""
    plan = await service.plan(planning.NOT_A_TASK)
    wrong = await service.call(plan, "answer", 1, answer="this one", recipe_id="swepe")
    chosen = await service.do(plan, "answer", 1, answer="this one", recipe_id="sweep")
    late = await service.call(plan, "answer", 1, answer="no, that one")

    refused(wrong, 400, "unknown_recipe")
    assert (states(chosen)[1], the(chosen, 1)["recipe_id"]) == ("pending", "sweep")
    assert late.status_code == 409, late.text


async def test_force_start_a_blocked_task(service: Planned) -> None:
    """A forced start runs a blocked task of a running plan, and no other task."""
    service.toolbox.hold(1)
    plan = await service.started(task("sweep the hall"), task("paint the hall", 1), task("paint the stairs", 1))
    await service.toolbox.begun(1)
    await service.do(plan, "force-start", 2)
    forced = await service.comes_to(plan, "running", "done", "blocked")
    twice = await service.call(plan, "force-start", 2)
    service.toolbox.release(1)
    await service.ends(plan)

    assert (the(forced, 2)["forced"], the(forced, 3)["forced"]) == (True, False)
    refused(twice, 409, "wrong_state")


async def test_force_start_behind_a_failed_task(service: Planned) -> None:
    """A forced task makes a failed plan run again, and its own dependents follow it."""
    service.toolbox.fail(1)
    plan = await service.started(task("sweep the hall"), task("paint the hall", 1), task("paint the stairs", 2))
    await service.ends(plan, "failed")
    forced = await service.do(plan, "force-start", 2)
    ended = await service.plan_until(plan, lambda shown: states(shown)[3] == "done" and shown["status"] != "running")

    assert forced["status"] == "running"
    assert (ended["status"], states(ended)) == ("failed", {1: "failed", 2: "done", 3: "done"})


@pytest.mark.parametrize("verb", ["force-start", "retry"])
async def test_forcing_and_retrying_need_a_plan_at_work(service: Planned, verb: str) -> None:
    """In a draft, and in a paused plan, no order starts a task."""
    plan = await service.plan(task("sweep the hall"), task("paint the hall", 1))
    refused(await service.call(plan, verb, 2), 409, "wrong_state")

    assert await service.shown(plan) == plan
    assert await service.runs_of(plan) == []


async def test_retry_a_failed_task(service: Planned) -> None:
    """A retry resumes the failed run without repeating paid steps, and the dependents of the task run."""
    service.toolbox.fail(1)
    plan = await service.started(task("sweep the hall"), task("paint the hall", 1))
    failed = await service.ends(plan, "failed")
    service.toolbox.mend(1)
    retried = await service.do(plan, "retry", 1)
    ended = await service.ends(plan)

    assert retried["status"] == "running"
    assert states(ended) == {1: "done", 2: "done"}
    assert (the(ended, 1)["run_id"], the(ended, 1)["attempt"]) == (the(failed, 1)["run_id"], 1)
    assert len(service.toolbox.tries(1, chores.FETCH)) == 1
    assert [attempt for _, attempt in service.toolbox.tries(1)] == [1, 2]
    assert the(ended, 1)["error"] is None
    assert len(await service.runs_of(plan)) == 2


async def test_retry_afresh(service: Planned) -> None:
    """A fresh retry starts a new run from its first step; the task remembers the earlier run."""
    service.toolbox.fail(1)
    plan = await service.started(task("sweep the hall"))
    failed = await service.ends(plan, "failed")
    service.toolbox.mend(1)
    await service.do(plan, "retry", 1, fresh=True)
    ended = await service.ends(plan)

    assert the(ended, 1)["earlier_runs"] == [the(failed, 1)["run_id"]]
    assert (the(ended, 1)["attempt"], len(service.toolbox.tries(1, chores.FETCH))) == (2, 2)


@pytest.mark.parametrize("number", [1, 2])
async def test_only_failed_tasks_are_retried(service: Planned, number: int) -> None:
    """The retry of a task that is done, or has not begun, is refused."""
    service.toolbox.fail(3)
    plan = await service.started(task("sweep the hall"), task("paint the hall", 3), task("sweep the yard"))
    failed = await service.ends(plan, "failed")
    refused(await service.call(plan, "retry", number), 409, "wrong_state")

    assert await service.shown(plan) == failed


async def test_a_finished_plan_starts_only_if_a_task_can_continue(service: Planned) -> None:
    """A failed or done plan starts only if one of its tasks can continue."""
    service.toolbox.fail(1)
    plan = await service.started(task("sweep the hall"), task("paint the hall", 1))
    await service.ends(plan, "failed")
    stuck = await service.call(plan, "start")
    edited = planning.answered(await service.edit(plan, 2, deps=[]), 200)
    started = await service.do(plan, "start")
    await service.plan_until(plan, lambda shown: states(shown)[2] == "done" and shown["status"] == "failed")
    service.toolbox.mend(1)
    await service.do(plan, "retry", 1)
    await service.ends(plan)
    done = await service.call(plan, "start")

    refused(stuck, 409, "wrong_state")
    assert (edited["status"], states(edited)[2], started["status"]) == ("failed", "pending", "running")
    refused(done, 409, "wrong_state")


async def test_a_run_sent_on_by_hand_takes_its_task_along(service: Planned) -> None:
    """When a person resumes the failed run of a task, the task runs and ends as done, and its dependents follow."""
    service.toolbox.fail(1)
    service.toolbox.hold(3)
    plan = await service.started(task("sweep the hall"), task("paint the hall", 1), task("sweep the yard"))
    run_id = the(await service.comes_to(plan, "failed", "blocked", "running"), 1)["run_id"]
    service.toolbox.mend(1)
    service.toolbox.hold(1)
    await service.http.post(f"/api/runs/{run_id}/resume", json={})
    await service.comes_to(plan, "running", "blocked", "running")
    service.toolbox.release(1, 3)
    ended = await service.ends(plan)

    assert states(ended) == {1: "done", 2: "done", 3: "done"}
    assert the(ended, 1)["run_id"] == run_id


async def test_a_deleted_run(service: Planned) -> None:
    """A done task stays done when its run is deleted."""
    plan = await service.started(task("sweep the hall"))
    ended = await service.ends(plan)
    deleted = await service.http.delete(f"/api/runs/{the(ended, 1)['run_id']}")
    more = added(await service.add(plan, task("paint the hall", 1)))
    await service.do(plan, "resume")
    last = await service.ends(plan)

    assert deleted.status_code == 204
    assert states(more) == {1: "done", 2: "pending"}
    assert states(last) == {1: "done", 2: "done"}


# -- Mode B, lifecycle, and refusals with their path


@pytest.mark.parametrize(
    ("tasks", "path", "code"),
    [
        ([task("sweep a", 1)], "$.tasks[0].deps[0]", "self_dependency"),
        ([task("sweep a", 9)], "$.tasks[0].deps[0]", "unknown_dependency"),
        ([task("sweep a", 2), task("sweep b", 1)], "$.tasks[0].deps[0]", "dependency_cycle"),
        ([task("a"), task("b", 1, 4), task("c", 2), task("d", 3)], "$.tasks[1].deps[1]", "dependency_cycle"),
        ([task("sweep a"), task("sweep b", 1, 1)], "$.tasks[1].deps[1]", "repeated_dependency"),
        ([task("sweep a", id=7), task("sweep b", id=7)], "$.tasks[1].id", "duplicate_task"),
        ([task("sweep a", id=999_999), task("sweep b")], "$.tasks[1].id", "invalid"),
        ([task("sweep a", id=0)], "$.tasks[0].id", None),
        ([task("sweep a", id="1")], "$.tasks[0].id", None),
        ([task("sweep a", True)], "$.tasks[0].deps[0]", None),
        ([task("")], "$.tasks[0].description", None),
        ([task(" \n")], "$.tasks[0].description", None),
        ([task("x" * 4001)], "$.tasks[0].description", None),
        ([task("sweep a"), task("sweep b", recipe_id="swep")], "$.tasks[1].recipe_id", "unknown_recipe"),
        ([task("carry it", args={"what": 5})], "$.tasks[0].args.what", None),
        ([task("carry it", args={"wat": "x", "what": "x"})], "$.tasks[0].args.wat", None),
        ([task("sweep a", status="done")], "$.tasks[0].status", None),
        ([task("sweep a", run_id="run_abc")], "$.tasks[0].run_id", None),
        ([task("sweep a", when="now")], "$.tasks[0].when", None),
        ([task("sweep a")] * 201, "$.tasks", None),
    ],
)  # fmt: skip
async def test_an_invalid_plan_is_refused_with_the_path_of_its_flaw(
    service: Planned, tasks: list[Any], path: str, code: str | None
) -> None:
    """Every flaw of a plan is a 400 with its path, and no plan is written."""
    problem = (answer := await service.ask(*tasks)).json()

    assert answer.status_code == 400, answer.text
    assert path in [flaw["path"] for flaw in problem["flaws"]], problem
    assert code is None or code in [flaw["code"] for flaw in problem["flaws"]], problem
    assert (await service.http.get("/api/sessions")).json() == []
    assert list((service.project.data / "sessions").glob("*/plan.json")) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"intent": ""},
        {"intent": "x" * 20_001},
        {"tasks": []},
        {"tasks": "sweep"},
        {"tasks": [None]},
        {"intent": 5},
        {"tasks": [{"description": "sweep a"}], "status": "running"},
        {"tasks": [{"description": "sweep a"}], "session_id": "../../x"},
        {"tasks": [{"description": "sweep a"}], "working_dir": "/etc"},
        {"tasks": [{"description": "sweep a"}], "priority": 101},
        {"tasks": [{"description": "sweep a"}], "labels": {"a:b": "c"}},
    ],
)
async def test_a_malformed_request_is_refused_with_its_faults(service: Planned, body: dict[str, Any]) -> None:
    """A malformed body is a 400 with the places of its faults."""
    answer = await service.http.post("/api/sessions", json=body)

    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] != "internal_error"
    assert (await service.http.get("/api/sessions")).json() == []


async def test_edits_make_no_impossible_graph(service: Planned) -> None:
    """An edit or an added task with a cycle or an unknown dependency is refused, and the plan does not change."""
    plan = await service.plan(task("sweep the hall"), task("paint the hall", 1))
    for answer in (
        await service.edit(plan, 1, deps=[2]),
        await service.edit(plan, 1, deps=[1]),
        await service.edit(plan, 2, deps=[1, 7]),
        await service.add(plan, task("sweep the yard", 9)),
        await service.add(plan, task("sweep the yard", id=2)),
        await service.edit(plan, 1, recipe_id="swep"),
        await service.edit(plan, 1, description=""),
        await service.edit(plan, 1),
    ):
        assert answer.status_code == 400, answer.text
        assert all(flaw["path"].startswith("$") for flaw in answer.json()["flaws"]), answer.text

    assert await service.shown(plan) == plan


async def test_no_chief_no_plan(project: Project) -> None:
    """An intent needs an agent with the archetype chief: without one, the answer is a 400 `no_chief`."""
    document = json.loads((project.data / "agents.json").read_text(encoding="utf-8"))
    document["agents"].append({"id": "chief-001", "archetype": "critic"})
    project.write(".control-room/agents.json", json.dumps(document))
    async with planning.in_process(project) as service:
        refused(await service.ask(intent="A clean house"), 400, "no_chief")

        assert (await service.http.get("/api/sessions")).json() == []


@pytest.mark.parametrize("session_id", ["sp_none", "..", "%2e%2e%2fagents", "x" * 3000, "ä"])
async def test_a_plan_that_is_not_there(service: Planned, session_id: str) -> None:
    """An unknown or malformed session id never reaches another file."""
    for method, more in (("GET", ""), ("POST", "/start"), ("DELETE", "/tasks/1"), ("POST", "/tasks/1/retry")):
        answer = await service.http.request(method, f"/api/sessions/{session_id}{more}")

        assert answer.status_code in (404, 405), answer.text
        assert answer.json()["code"] in ("plan_not_found", "not_found", "method_not_allowed")


@pytest.mark.parametrize("task_id", ["0", "-1", "9", "99999999999999999999", "one"])
async def test_a_task_that_is_not_there(service: Planned, task_id: str) -> None:
    """An unknown task number is a 404, a malformed one a 400 or a 404, and neither is an error of the service."""
    plan = await service.started(task("sweep the hall"))
    await service.ends(plan)
    place = f"/api/sessions/{plan['session_id']}/tasks/{task_id}"
    answers = [
        await service.http.post(f"{place}/retry"),
        await service.http.post(f"{place}/force-start"),
        await service.http.post(f"{place}/answer", json={"answer": "x"}),
        await service.http.patch(place, json={"dod": "x"}),
        await service.http.delete(place),
    ]

    assert {answer.status_code for answer in answers} <= {400, 404}
    assert task_id != "9" or {answer.json()["code"] for answer in answers} == {"task_not_found"}


# -- lists, revisions, keys


async def test_plans_are_listed_newest_first(service: Planned) -> None:
    """The list shows each plan with the number of tasks in each state, in pages, and by state."""
    service.toolbox.fail(1)
    plans = [await service.plan(*sweeping(2), intent=f"House {number}") for number in range(3)]
    await service.do(plans[0], "approve")
    await service.do(plans[0], "start")
    await service.ends(plans[0], "failed")
    address, rows = "/api/sessions?limit=2", []
    while address:
        answer = await service.http.get(address)
        rows += answer.json()
        address = answer.links.get("next", {}).get("url", "")
    failed = (await service.http.get("/api/sessions", params={"status": "failed"})).json()
    odd = await service.http.get("/api/sessions", params={"status": "odd"})

    assert {row["session_id"] for row in rows} == {plan["session_id"] for plan in plans}
    assert [row["created_at"] for row in rows] == sorted((row["created_at"] for row in rows), reverse=True)
    assert [(row["intent"], row["tasks"]) for row in failed] == [("House 0", {"failed": 1, "done": 1})]
    assert (len(rows), odd.status_code) == (3, 400)


async def test_plans_that_wait_for_a_person_are_listed(service: Planned) -> None:
    """`waits` lists drafts and plans with an open question, and the statistics count the same plans."""
    draft = await service.plan(*sweeping(1))
    asking = await service.plan({"description": "sweep", "scoping_question": "Which room?"})
    approved = await service.plan(*sweeping(1))
    for plan in (asking, approved):
        await service.do(plan, "approve")
    found = (await service.http.get("/api/sessions", params={"waits": True})).json()
    counted = (await service.http.get("/api/stats")).json()["waits"]["plans"]

    assert {row["session_id"] for row in found} == {draft["session_id"], asking["session_id"]}
    assert (counted, len((await service.http.get("/api/sessions")).json())) == (2, 3)


async def test_each_change_counts_once(service: Planned) -> None:
    """The revision rises by one with every change of a person or the planner; an ETag names it."""
    plan = await service.plan(*sweeping(2))
    approved = await service.do(plan, "approve")
    edited = planning.answered(await service.edit(plan, 1, dod="Clean"), 200)
    ordered = planning.answered(await service.order(plan, 2, 1), 200)

    assert [each["revision"] for each in (plan, approved, edited, ordered)] == [1, 2, 3, 4]
    assert ordered["updated_at"] >= plan["updated_at"]
    assert ordered["created_at"] == plan["created_at"]


@pytest.mark.parametrize(("body", "headers"), [({"revision": 1}, {}), ({}, {"If-Match": '"1"'})])
async def test_a_change_of_something_older_is_refused(
    service: Planned, body: dict[str, Any], headers: dict[str, str]
) -> None:
    """A change with an older revision, in its body or by `If-Match`, is a 409 with the present plan."""
    plan = await service.plan(*sweeping(2))
    now = await service.do(plan, "approve")
    address = f"/api/sessions/{plan['session_id']}"
    for method, place, fields in (
        ("PATCH", "", {"order": [2, 1]}),
        ("PATCH", "/tasks/1", {"dod": "x"}),
        ("POST", "/tasks", {"description": "sweep more"}),
        ("POST", "/start", {}),
    ):
        answer = await service.http.request(method, address + place, json=fields | body, headers=headers)
        problem = refused(answer, 409, "plan_changed")
        assert problem["facts"]["plan"] == now, problem

    assert await service.shown(plan) == now


async def test_a_key_makes_one_plan(service: Planned) -> None:
    """The same request under the same key finds its plan; another request under the key is a 409."""
    first = await service.ask(*sweeping(2), key="house")
    again = await service.ask(*sweeping(2), key="house")
    other = await service.ask(*sweeping(3), key="house")

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.headers["location"] == f"/api/sessions/{first.json()['session_id']}"
    assert again.json() == first.json()
    refused(other, 409, "idempotency_conflict")
    assert len((await service.http.get("/api/sessions")).json()) == 1


async def test_a_key_adds_one_task(service: Planned) -> None:
    """The same task under the same key is added once, whatever happens to it and its plan; another one is a 409."""
    plan = await service.plan(*sweeping(1), review="off")
    address, more = f"/api/sessions/{plan['session_id']}/tasks", {"description": "sweep more", "revision": 1}

    async def ask(key: str, **fields: Any) -> httpx.Response:
        return await service.http.post(address, json=more | fields, headers={"Idempotency-Key": key})

    first = await ask("more")
    again = await ask("more")
    await service.edit(plan, 2, dod="It shines")
    await service.do(plan, "approve")
    await service.do(plan, "start")
    done = await service.ends(plan)
    late = await ask("more")
    other = await ask("more", deps=[1])
    wrong = await ask("x" * 300)
    second = await ask("most", revision=done["revision"])
    await service.do(plan, "", 3, method="DELETE")
    third = await ask("most", revision=done["revision"] + 2)

    assert (first.status_code, again.status_code, late.status_code) == (201, 200, 200)
    assert (again.json(), late.json()) == (first.json(), done)
    assert len(done["tasks"]) == 2
    assert refused(other, 409, "idempotency_conflict")["facts"]["task"] == 2
    refused(wrong, 400, "request_invalid", "header.Idempotency-Key")
    assert (second.status_code, second.json()["tasks"][-1]["id"]) == (201, 3)
    assert (third.status_code, third.json()["tasks"][-1]["id"]) == (201, 4)


async def test_a_key_adds_one_task_even_if_asked_ten_times_at_once(service: Planned) -> None:
    """One of ten concurrent requests under one key adds the task, and all are answered with the plan."""
    plan = await service.plan(*sweeping(1))
    address, headers = f"/api/sessions/{plan['session_id']}/tasks", {"Idempotency-Key": "more"}
    asked = (service.http.post(address, json={"description": "sweep more"}, headers=headers) for _ in range(10))
    answers = await asyncio.gather(*asked)

    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [201]
    assert len((await service.shown(plan))["tasks"]) == 2


async def test_a_plan_is_deleted(service: Planned) -> None:
    """A plan without running tasks is deleted with a 204; its runs remain, and a second deletion is a 404."""
    service.toolbox.hold(1)
    plan = await service.started(task("sweep the hall"))
    await service.toolbox.begun(1)
    address = f"/api/sessions/{plan['session_id']}"
    early = await service.http.delete(address)
    service.toolbox.release(1)
    done = await service.ends(plan)
    runs = await service.runs_of(plan)
    old = await service.http.delete(address, headers={"If-Match": '"1"'})
    both = await service.http.delete(address, headers={"If-Match": '"1"'}, params={"revision": 2})
    gone = await service.http.delete(address, params={"revision": done["revision"]})
    again = await service.http.delete(address)

    refused(early, 409, "wrong_state")
    assert refused(old, 409, "plan_changed")["facts"]["plan"] == done
    refused(both, 400, "request_invalid")
    assert (gone.status_code, gone.content) == (204, b"")
    refused(again, 404, "plan_not_found")
    assert (await service.http.get("/api/sessions")).json() == []
    assert await service.runs_of(plan) == runs
    assert [run["status"] for run in runs] == ["done"]


async def test_a_damaged_plan_is_not_deleted(service: Planned) -> None:
    """A damaged plan is not deleted, since its running tasks are unknown; a person must repair or remove it."""
    plan = await service.plan(*sweeping(1))
    service.file(plan).write_text("{")

    refused(await service.http.delete(f"/api/sessions/{plan['session_id']}"), 409, "plan_damaged")
    assert service.file(plan).read_text() == "{"


async def test_waiting_for_a_change(service: Planned) -> None:
    """A poll with the known ETag waits for a change; for a plan that cannot change it is answered at once."""
    service.toolbox.hold(1)
    plan = await service.started(task("sweep the hall"))
    await service.toolbox.begun(1)
    running = await service.comes_to(plan, "running")
    address, known = f"/api/sessions/{plan['session_id']}", {"If-None-Match": f'"{running["revision"]}"'}
    poll = asyncio.create_task(service.http.get(address, params={"wait": 15}, headers=known))
    await asyncio.wait([poll], timeout=0.2)
    early = poll.done()
    service.toolbox.release(1)
    changed = await poll
    ended = await service.ends(plan)
    async with asyncio.timeout(30):
        rested = await service.http.get(
            address, params={"wait": 60}, headers={"If-None-Match": f'"{ended["revision"]}"'}
        )

    assert (early, changed.status_code, states(changed.json())) == (False, 200, {1: "done"})
    assert rested.status_code in (200, 304)


# -- a restarted service


async def test_a_restarted_service_continues(project: Project) -> None:
    """The next service continues a running plan: the run in flight once more, finished ones not again."""
    toolbox = chores.Toolbox()
    toolbox.hold(2)
    async with planning.in_process(project, toolbox) as service:
        plan = await service.started(task("sweep the hall"), task("paint the hall", 1), task("paint the door", 2))
        await toolbox.begun(2)
        before = await service.comes_to(plan, "done", "running", "blocked")
    toolbox.release(2)
    async with planning.in_process(project, toolbox) as service:
        ended = await service.ends(plan)
        runs = await service.runs_of(plan)

    assert states(ended) == {1: "done", 2: "done", 3: "done"}
    assert [each["attempt"] for each in ended["tasks"]] == [1, 1, 1]
    assert [the(ended, number)["run_id"] for number in (1, 2)] == [the(before, number)["run_id"] for number in (1, 2)]
    assert len(runs) == 3
    assert len(toolbox.tries(1)) == 1


@pytest.mark.parametrize("status", ["draft", "approved", "paused"])
async def test_a_restarted_service_begins_nothing_unasked(project: Project, status: str) -> None:
    """A plan that was not started, or that a person paused, does not change at a restart."""
    toolbox = chores.Toolbox()
    async with planning.in_process(project, toolbox) as service:
        plan = await service.plan(planning.NOT_A_TASK, task("sweep the hall", 1))
        for verb in {"draft": (), "approved": ("approve",), "paused": ("approve", "start", "pause")}[status]:
            await service.do(plan, verb)
        before = await service.shown(plan)
    async with planning.in_process(project, toolbox) as service:
        await service.http.get("/readyz")
        after = await service.shown(plan)

    assert before["status"] == status
    assert after == before
    assert toolbox.performed == []


async def test_a_retry_keeps_to_dependencies(service: Planned) -> None:
    """A failed task that depends on an unfinished one since an edit waits for it, even after a retry."""
    service.toolbox.fail(1)
    service.toolbox.hold(2)
    plan = await service.started(*sweeping(2))
    await service.comes_to(plan, "failed", "running")
    await service.edit(plan, 1, deps=[2])
    service.toolbox.mend(1)
    retried = await service.do(plan, "retry", 1)
    service.toolbox.release(2)
    await service.ends(plan)

    assert states(retried) == {2: "running", 1: "blocked"}
    # The first two began side by side.
    assert [number for number, *_ in service.toolbox.asked[2:]] == [1]
