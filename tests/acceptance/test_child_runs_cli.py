"""Runs that wait for runs they have started, executed by commands without a service: what a person is asked and told,
and that each order which is named sends the whole on."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import programs, test_gates

AGENTS = {
    "default_backend": "said",
    "backends": {"said": {"type": "scripted", "file": "replies.json"}},
    "agents": [{"id": "w", "archetype": "w", "tier": "t3", "backend": "said", "role": "You answer."}],
}
GATE = {"required": True, "prompt": "ok {{o}}?"}
ASKS = {"stages": [{"name": "s", "steps": [{"id": "a", "type": "bash", "command": "echo q", "output": "o"}]}]}
EACH = {"foreach": "{{kinds}}", "as": "kind", "parallel": True, "collect": "all"}
SPEAKS = [{"id": name, "agent": "w", "prompt": name, "output": name} for name in ("one", "two")]


def child(recipe_id: str, **more: Any) -> dict[str, Any]:
    """Return a step that starts a run of a recipe."""
    return {"id": "below", "type": "recipe", "recipe": recipe_id, "output": "r", **more}


RECIPES: dict[str, dict[str, Any]] = {
    "asks": {"stages": [ASKS["stages"][0] | {"approval": GATE}]},
    "expires": {"stages": [ASKS["stages"][0] | {"approval": GATE | {"timeout": 1, "default": "approve"}}]},
    "middle": {"steps": [child("asks")]},
    "top": {"steps": [child("middle"), {"id": "after", "type": "bash", "command": "echo over", "output": "end"}]},
    "many": {"context": {"kinds": ["x", "y"]}, "steps": [child("asks", **EACH)]},
    "waits": {"steps": [child("expires")]},
    "speaks": {"steps": SPEAKS},
    "limited": {"steps": [child("speaks")]},
}


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Return a project with recipes that start runs of one another."""
    made = programs.Project(tmp_path)
    made.write("agents.json", AGENTS)
    made.write("replies.json", {"*": "k"})
    for name, recipe in RECIPES.items():
        whole = {"schema": "1.7", "name": name, "description": "d", "version": "1.0.0", **recipe}
        made.write(f"recipes/amplifier/{name}.yaml", json.dumps(whole))
    return made


def orders(said: str) -> list[list[str]]:
    """Return the words of the commands that a command names, with the first of several answers."""
    named = re.findall(r"(?:answer|continue) with: control-room (.*)|and then: control-room (.*)", said)
    return [shlex.split((first or second).split("|")[0]) for first, second in named]


def runs_of(project: programs.Project, recipe_id: str) -> list[dict[str, Any]]:
    """Return the runs of a recipe."""
    return [run for run in programs.asked("runs", "list", project=project) if run["recipe_id"] == recipe_id]


def test_a_question_of_a_grandchild_is_answered_after_the_command(project: programs.Project) -> None:
    """Without a terminal a run whose grandchild asks ends with 1, and the named answer leads all three to their end."""
    left = programs.control_room("run", "top", project=project, code=1)
    (answer,) = orders(left.stderr)
    done = programs.control_room(*answer, project=project)

    assert "ok q?" in left.stderr
    assert "interrupted" not in left.stderr
    assert f"run {runs_of(project, 'top')[0]['run_id']} done" in done.stdout
    assert [run["status"] for run in programs.asked("runs", "list", project=project)] == ["done"] * 3


def test_each_of_several_children_is_answered(project: programs.Project) -> None:
    """Of two children that ask at a time both questions are named; after one answer the other one is named again."""
    left = programs.control_room("run", "many", project=project, code=1)
    first, second = orders(left.stderr)
    again = programs.control_room(*first, project=project, code=1)
    programs.control_room(*second, project=project)

    assert orders(again.stderr) == [second]
    assert runs_of(project, "many")[0]["status"] == "done"


def test_a_question_of_a_child_is_asked_at_the_terminal(project: programs.Project) -> None:
    """At a terminal the person is asked what a grandchild asks, and the run continues to its end."""
    with test_gates.at_a_terminal(project, "run", "top") as terminal:
        terminal.until("ok q?")
        terminal.until("[")
        terminal.write("approve\n")
        terminal.until("after")
        assert terminal.ended() == 0


def test_the_default_of_a_child_is_waited_for(project: programs.Project) -> None:
    """A run whose child asks a question with a default waits for the default, without a terminal, too."""
    programs.control_room("run", "waits", project=project)


@pytest.mark.parametrize("way", ["unpause", "resume"])
def test_a_child_that_met_a_limit_continues_with_its_parent(project: programs.Project, way: str) -> None:
    """A run whose child is parked at its limit ends with 1; raised, its parent or the child leads both to their end."""
    left = programs.control_room("run", "limited", "--max-calls", "1", project=project, code=1)
    raised, unpause = orders(left.stderr)
    (parent,) = runs_of(project, "limited")
    refused = programs.control_room(*unpause, project=project, code=1)
    programs.control_room(*(word.replace("N", "5") if word == "N" else word for word in raised), project=project)
    programs.control_room(*(unpause if way == "unpause" else ["runs", "resume", parent["run_id"]]), project=project)

    assert "budget_exhausted" in refused.stderr
    assert [run["status"] for run in programs.asked("runs", "list", project=project)] == ["done"] * 2


def test_why_names_where_a_run_halts(project: programs.Project) -> None:
    """The explanation of a run lists the runs of which a person must answer a gate before anything moves."""
    programs.control_room("run", "many", project=project, code=1)
    found = programs.asked("runs", "why", runs_of(project, "many")[0]["run_id"], project=project)

    assert sorted(found["halted_at"]) == sorted(run["run_id"] for run in runs_of(project, "asks"))
