"""The chief's role in plans over HTTP, as specified: decompose, scope, define what is done, sequence, and no more."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import planning
from tests.integration.planning import Planned, refused, states, task, the
from tests.integration.project import Project

INTENT = "A clean house before the guests come"
DONE = {"deps": [], "dod": "It is done."}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose chief has scripted replies, too."""
    made = planning.make_project(tmp_path / "project")
    document = json.loads((made.data / "agents.json").read_text(encoding="utf-8"))
    chief = {"id": "chief-001", "archetype": "chief", "tier": "t3", "backend": "said", "role": "The chief."}
    made.write(".control-room/agents.json", json.dumps(document | {"agents": [*document["agents"], chief]}))
    return made


@pytest.fixture
async def service(project: Project) -> AsyncIterator[Planned]:
    """Return the service of the project, in process."""
    async with planning.in_process(project) as service:
        yield service


def says(project: Project, *tasks: dict[str, Any], key: str = "chief") -> None:
    """Let the chief answer with tasks."""
    project.say(
        key, text=json.dumps({"tasks": [DONE | {"id": number, **each} for number, each in enumerate(tasks, 1)]})
    )


async def asked(service: Planned, **more: Any) -> planning.Plan:
    """Request a plan of the intent."""
    return planning.answered(await service.ask(intent=INTENT, **more), 201)


async def drafted(service: Planned) -> planning.Plan:
    """Request a plan of the intent, and return it with the chief's tasks, or as failed."""
    plan = await asked(service)
    return await service.plan_until(plan, lambda shown: bool(shown["tasks"]) or shown["status"] == "failed")


async def test_the_chief_decomposes_sequences_and_defines_done(service: Planned) -> None:
    """An intent becomes a draft with the chief's tasks, dependencies and definitions of done; a person approves it."""
    says(service.project, task("sweep the hall", dod="No dust"), task("paint the hall", 1, dod="Blue"))
    plan = await drafted(service)
    (run,) = await service.runs_of(plan)
    early = await service.call(plan, "start")
    await service.call(plan, "", method="PATCH", review="off")
    await service.do(plan, "approve")
    await service.do(plan, "start")
    ended = await service.ends(plan)

    assert (plan["created_by"], plan["status"], plan["intent"]) == ("chief", "draft", INTENT)
    assert [(each["id"], each["deps"], each["dod"], each["status"]) for each in plan["tasks"]] == [
        (1, [], "No dust", "pending"),
        (2, [1], "Blue", "blocked"),
    ]
    assert [each["recipe_id"] for each in plan["tasks"]] == ["sweep", "paint"]
    assert (run["run_id"], run["recipe_id"]) == (plan["chief_run_id"], "decompose")
    refused(early, 409, "wrong_state")
    assert states(ended) == {1: "done", 2: "done"}


async def test_the_chief_scopes(service: Planned) -> None:
    """The chief's question belongs to its task; a task without a recipe or valid arguments gets a question, too."""
    says(
        service.project,
        task("sweep something", scoping_question="What is to be swept?"),
        task("xyzzy"),
        task("carry the table", args={"what": "table", "times": "often"}),
        task("carry the chair", args={"what": "chair"}),
    )
    plan = await drafted(service)
    answered = await service.do(plan, "answer", 1, answer="The stairs.")

    assert states(plan) == {1: "needs_scoping", 2: "needs_scoping", 3: "needs_scoping", 4: "pending"}
    assert [each["asked_by"] for each in plan["tasks"]] == ["chief", "system", "system", None]
    assert the(plan, 1)["scoping_question"] == "What is to be swept?"
    assert "times" in the(plan, 3)["scoping_question"]
    assert states(answered)[1] == "pending"


@pytest.mark.parametrize(
    "reply",
    [
        "I would rather not.",
        '{"tasks": []}',
        '{"tasks": [{"id": 1, "description": "sweep it", "recipe_id": "sweep"}]}',
        '{"tasks": [{"id": 1, "description": "sweep it", "deps": [1]}]}',
        '{"tasks": [{"id": 1, "description": "a", "deps": [2]}, {"id": 2, "description": "b", "deps": [1]}]}',
        '{"tasks": [{"id": 1, "description": "sweep it", "deps": [7]}]}',
    ],
)
async def test_the_chief_gets_one_correction(service: Planned, reply: str) -> None:
    """The chief gets one correction of a reply that is not a plan or chooses a recipe; the second reply counts."""
    service.project.say("chief", text=reply)
    says(service.project, task("sweep the hall"), key="chief.correction")
    plan = await drafted(service)
    log = (await service.http.get(f"/api/runs/{plan['chief_run_id']}/steps")).json()

    assert states(plan) == {1: "pending"}
    assert [line["key"] for line in log] == ["look", "chief", "chief.correction"]


async def test_then_a_clear_failure(service: Planned) -> None:
    """After the correction, plan and run fail with the chief's error; a start asks the chief again."""
    service.project.say("chief*", text="No.")
    failed = await drafted(service)
    run = await service.show(failed["chief_run_id"])
    service.project.say("chief*", text=json.dumps({"tasks": [DONE | {"id": 1, "description": "sweep the hall"}]}))
    again = await service.do(failed, "start")
    plan = await service.plan_until(failed, lambda shown: bool(shown["tasks"]))

    assert (failed["status"], failed["tasks"], failed["error"]["code"]) == ("failed", [], "decomposition_invalid")
    assert (run["status"], run["error"]) == ("failed", failed["error"])
    assert again["status"] == "draft"
    assert (plan["status"], plan["error"], states(plan)) == ("draft", None, {1: "pending"})
    assert plan["chief_run_id"] == failed["chief_run_id"]


async def test_while_the_chief_is_at_work(service: Planned) -> None:
    """Until the chief's tasks arrive, changes and starts of the plan are refused; a cancel of the run fails it."""
    service.project.say("chief", hang=True)
    plan = await asked(service)
    run = await service.until(plan["chief_run_id"], step="chief")
    answers = [
        await service.call(plan, "approve"),
        await service.call(plan, "start"),
        await service.add(plan, task("sweep the yard")),
    ]
    cancelled = await service.http.post(f"/api/runs/{run['run_id']}/cancel")
    failed = await service.plan_until(plan, lambda shown: shown["status"] == "failed")
    says(service.project, task("sweep the hall"))
    await service.do(plan, "start")
    drafted = await service.plan_until(plan, lambda shown: bool(shown["tasks"]))

    assert (plan["status"], plan["tasks"], cancelled.status_code) == ("draft", [], 200)
    for answer in answers:
        refused(answer, 409, "wrong_state")
    assert failed["error"]["code"]
    assert drafted["status"] == "draft"


async def test_the_chief_is_asked_once_for_a_key(service: Planned) -> None:
    """The same intent under the same key creates one plan and one run of the chief."""
    says(service.project, task("sweep the hall"))
    first = await asked(service, key="house")
    again = await service.ask(intent=INTENT, key="house")
    await service.plan_until(first, lambda shown: bool(shown["tasks"]))

    assert (again.status_code, again.json()["session_id"]) == (200, first["session_id"])
    assert len(await service.runs_of(first)) == 1


async def test_an_intent_beside_tasks_is_a_title(service: Planned) -> None:
    """With tasks given, the chief is not called, and the plan belongs to its user."""
    plan = await service.plan(task("sweep the hall"), intent=INTENT)

    assert (plan["created_by"], plan["intent"], plan["chief_run_id"]) == ("user", INTENT, None)
    assert await service.runs_of(plan) == []


# -- the review


async def test_a_person_decides_where_the_chief_is_unsure(service: Planned) -> None:
    """The approval names who reviews, the plan shows the gate, and its answer fails the task or ends it as done."""
    unsure = {
        "verdict": "unsure",
        "why": "I see no paint.",
        "proposals": [{"kind": "remove_task", "task": 9, "why": "x"}],
    }
    service.project.say("review", text=json.dumps(unsure))
    plan = await service.plan(task("paint the hall", dod="Blue"))
    approved = await service.do(plan, "approve")
    await service.do(plan, "start")
    shown = await service.plan_until(plan, lambda shown: bool(shown["tasks"][0].get("review", {}).get("gate_id")))
    review = shown["tasks"][0]["review"]
    (gate,) = (await service.http.get("/api/gates", params={"session_id": plan["session_id"]})).json()
    answer = {"decision": "not_met", "message": "It is red."}
    assert (await service.http.post(f"/api/gates/{gate['gate_id']}", json=answer)).status_code == 200
    failed = await service.ends(plan, "failed")
    issues = (await service.http.get("/api/issues", params={"session_id": plan["session_id"]})).json()
    await service.do(plan, "retry", 1)
    again = await service.plan_until(
        plan, lambda shown: shown["tasks"][0]["review"]["number"] == 2 and shown["tasks"][0]["review"]["gate_id"]
    )
    address = f"/api/gates/{again['tasks'][0]['review']['gate_id']}"
    assert (await service.http.post(address, json={"decision": "met"})).status_code == 200
    ended = await service.ends(plan)

    assert approved["reviewer"]["by"] == "chief"
    assert (review["status"], review["gate_id"], review["run_id"]) == ("waiting", gate["gate_id"], gate["run_id"])
    assert "I see no paint." in gate["prompt"]
    assert (failed["tasks"][0]["error"]["code"], "It is red." in failed["tasks"][0]["error"]["message"]) == (
        "task_not_met",
        True,
    )
    assert [(issue["kind"], issue["status"]) for issue in issues] == [("task", "open")]
    assert ended["tasks"][0]["review"]["verdict"] == "met"
    assert [each["status"] for each in ended["proposals"]] == ["refused", "refused"]
