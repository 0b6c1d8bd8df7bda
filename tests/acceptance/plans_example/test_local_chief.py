"""The example project's plan with a chief on the local model, whose reply is bound by its schema.

The plan of a model of 135 million parameters is always valid, but not always sensible. A person reads it, corrects it
and answers its questions, as these tests do.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app.agents import local
from tests.acceptance import programs
from tests.acceptance.plans_example import journey
from tests.acceptance.plans_example.journey import SCENES, Journey, Plan

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(bool(local.missing_packages()), reason=local.lacks() or ""),
]


@pytest.mark.slow
def test_the_local_model_makes_a_plan_that_runs_to_its_end(tmp_path: Path) -> None:
    """The bundled chief splits the intent on the local model, a person scopes its tasks, scripted agents do them."""
    project = journey.make_project(tmp_path / "example")

    ended = _gone(project)

    assert ended["status"] == "done", ended
    assert {task["status"] for task in ended["tasks"]} == {"done"}
    assert {"creative_draft_scene", "analytical_consistency", "analytical_foreshadow"} <= {
        task["recipe_id"] for task in ended["tasks"]
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_of_it_on_the_local_model(tmp_path: Path) -> None:
    """The same plan succeeds with every agent on the local model.

    This takes a few minutes. Run it with
    `.venv/bin/python -m pytest tests/acceptance/plans_example -m slow -k all_of_it`.
    """
    project = journey.make_project(tmp_path / "example", scripted=())

    ended = _gone(project)

    assert ended["status"] == "done", ended
    drafts = [*(project.path / "Drafts").glob("*.md"), *(project.path / "Story/Scenes").glob("*locked*.md")]

    assert len(drafts) == len([task for task in ended["tasks"] if task["recipe_id"] == "creative_draft_scene"])


def _gone(project: programs.Project) -> Plan:
    with programs.service(project) as service, service.http() as http:
        plan = Journey.begin(http, review="off")
        split = plan.split()
        assert split["status"] == "draft", split["error"]
        _scoped(plan, split)
        plan.move("approve")
        plan.move("start")
        return plan.ended()


def _scoped(plan: Journey, split: Plan) -> None:
    for task in split["tasks"]:
        if task["status"] != "needs_scoping":
            continue
        number = "22" if "22" in task["description"] else "21"
        known = {"creative_draft_scene": SCENES[number]}.get(task["recipe_id"], {})
        plan.answer(task["id"], f"It is about scene {number}.", args=known)
