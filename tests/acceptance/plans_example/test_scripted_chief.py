"""The example project's plan from intent to done, over HTTP, with a chief and agents from a script."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.acceptance import programs
from tests.acceptance.plans_example import journey
from tests.acceptance.plans_example.journey import INTENT, SCENES, WRITTEN, Journey

CHIEF = {
    "tasks": [
        {
            "id": 1,
            "description": "Write scene 21",
            "deps": [],
            "dod": "The scene is there and contradicts no card.",
            "args": SCENES["21"],
            "scoping_question": None,
        },
        {
            "id": 2,
            "description": "Write scene 22",
            "deps": [1],
            "dod": "So is that one.",
            "args": {},
            "scoping_question": None,
        },
        {
            "id": 3,
            "description": "Check consistency of scenes 21 and 22 with the canon",
            "deps": [1, 2],
            "dod": "Every contradiction is an issue.",
            "args": {"canon_paths": ["Compendium"]},
            "scoping_question": None,
        },
        {
            "id": 4,
            "description": "Foreshadowing audit",
            "deps": [],
            "dod": "There is a report.",
            "args": {},
            "scoping_question": "Which themes need foreshadowing?",
        },
    ]
}
THEMES = "The sealed letter and the cracked bell."


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Return the example project with a scripted chief."""
    return journey.make_project(tmp_path / "example", chief=json.dumps(CHIEF))


def plan_args(project: programs.Project, run_id: str) -> dict:
    """Return the arguments at the start of a run."""
    return json.loads((project.data / "runs" / run_id / "start.json").read_text())["args"]


def test_the_plan_of_the_specification_runs_from_intent_to_done(project: programs.Project) -> None:
    """The chief splits the intent, a person answers, approves and starts, and later tasks find the written scenes."""
    with programs.service(project) as service, service.http() as http:
        plan = Journey.begin(http)
        split = plan.split()

        assert split["created_by"] == "chief"
        assert journey.statuses(split) == [(1, "pending"), (2, "blocked"), (3, "blocked"), (4, "needs_scoping")]
        assert [task["recipe_id"] for task in split["tasks"]] == [
            "creative_draft_scene",
            "creative_draft_scene",
            "analytical_consistency",
            "analytical_foreshadow",
        ]

        tasks = journey.by_id(split)

        assert (tasks[2]["scoping_question"], tasks[4]["asked_by"]) == (None, "chief")
        assert tasks[4]["scoping_question"] == "Which themes need foreshadowing?"

        plan.answer(4, THEMES)
        plan.move("approve")
        plan.move("start")
        ended = plan.ended()
        runs = {task["id"]: plan.run(task["run_id"]) for task in ended["tasks"]}
        chief = plan.run(ended["chief_run_id"])
        listed = http.get("/api/sessions").json()
        issues = http.get("/api/issues", params={"session_id": plan.session_id}).json()

    assert ended["status"] == "done", ended
    assert [(task["review"]["verdict"], task["review"]["by"]) for task in ended["tasks"]] == [("met", "chief")] * 4
    assert {run["status"] for run in runs.values()} == {"done"}
    assert {run["session_id"] for run in (*runs.values(), chief)} == {plan.session_id}
    assert [run["task"]["session_plan_task_id"] for run in runs.values()] == [1, 2, 3, 4]
    assert runs[1]["completed_at"] <= runs[2]["created_at"]
    assert runs[2]["completed_at"] <= runs[3]["created_at"]
    assert runs[4]["created_at"] <= runs[2]["created_at"]
    for path in (f"Drafts/{runs[1]['run_id']}.md", str(SCENES["22"]["scene_path"])):
        assert (project.path / path).read_text().strip() == WRITTEN.strip()
    checked = plan_args(project, runs[3]["run_id"])["scene_paths"]
    assert checked == [f"Drafts/{runs[1]['run_id']}.md", SCENES["22"]["scene_path"]]
    assert [(row["session_id"], row["status"], row["tasks"]) for row in listed] == [
        (plan.session_id, "done", {"done": 4})
    ]
    assert journey.kept(project, plan.session_id) == ended
    assert (chief["recipe_id"], chief["status"]) == ("decompose", "done")
    assert {issue["kind"] for issue in issues} == {"finding"}


def test_agents_see_their_task_and_nothing_of_the_plan(project: programs.Project) -> None:
    """A prompt contains the description and answers of its own task, but neither the intent nor another task."""
    with programs.service(project) as service, service.http() as http:
        plan = Journey.begin(http)
        plan.split()
        plan.answer(4, THEMES)
        plan.move("approve")
        plan.move("start")
        ended = plan.ended()
    told = {task["id"]: "".join(journey.prompts(project, task["run_id"]).values()) for task in ended["tasks"]}

    assert all(told.values())
    for task, other in itertools.permutations(CHIEF["tasks"], 2):
        assert f"Task: {task['description']}" in told[task["id"]]
        assert f"Task: {other['description']}" not in told[task["id"]]
    assert all(INTENT not in prompt and plan.session_id not in prompt for prompt in told.values())
    assert THEMES in told[4]
    assert THEMES not in told[1] + told[2] + told[3]


def test_the_plan_outlives_kills(project: programs.Project) -> None:
    """Killed while the chief works and during a task, the service finishes the plan, and no task has a second run."""
    project.write("replies.json", journey.REPLIES | {"chief": {"hang": True}})
    with programs.service(project) as service, service.http() as http:
        plan = Journey.begin(http)
        service.wait_for_step(plan.plan()["chief_run_id"], "chief")
        service.process.kill()
    project.write("replies.json", journey.REPLIES | {"chief": json.dumps(CHIEF), "draft": {"hang": True}})
    with programs.service(project) as service, service.http() as http:
        plan = Journey(http, plan.session_id)
        plan.split()
        plan.answer(4, THEMES)
        plan.move("approve")
        plan.move("start")
        running = plan.until(lambda found: journey.by_id(found)[1]["run_id"] is not None)
        service.wait_for_step(journey.by_id(running)[1]["run_id"], "draft")
        service.process.kill()
    project.write("replies.json", journey.REPLIES)
    with programs.service(project) as service, service.http() as http:
        plan = Journey(http, plan.session_id)
        ended = plan.ended()
        runs = [plan.run(task["run_id"]) for task in ended["tasks"]]
        every = http.get("/api/runs").json()

    assert ended["status"] == "done", ended
    assert {run["status"] for run in runs} == {"done"}
    assert [task["attempt"] for task in ended["tasks"]] == [1, 1, 1, 1]
    assert sorted(run["recipe_id"] for run in every)[-4:] == ["review_task"] * 4
    assert len(every) == 9


def test_a_chief_without_a_valid_plan_fails_the_plan(project: programs.Project) -> None:
    """After one correction the plan fails with its flaws; once the chief replies correctly, a start continues it."""
    project.write("replies.json", journey.REPLIES | {"chief": "Gladly!", "chief.correction": '{"tasks": []}'})
    with programs.service(project) as service, service.http() as http:
        plan = Journey.begin(http)
        failed = plan.split()

        assert (failed["status"], failed["error"]["code"]) == ("failed", "decomposition_invalid")
        assert [flaw["path"] for flaw in failed["error"]["detail"]["flaws"]] == ["$.tasks"]

        project.write("replies.json", journey.REPLIES | {"chief": json.dumps(CHIEF)})
        plan.move("start")
        mended = plan.split()

    assert len(mended["tasks"]) == 4
    assert mended["error"] is None
