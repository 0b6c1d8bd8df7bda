"""Runs that wait for runs they have started, executed by commands without a service: what a person is asked and told,
and that each order which is named sends the whole on."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import amplifier_project, programs, test_gates
from tests.acceptance.amplifier_project import bash, child, runs_of

GATE = {"required": True, "prompt": "ok {{o}}?"}
ASKS = {"stages": [{"name": "s", "steps": [bash("o", "echo q")]}]}
EACH = {"foreach": "{{kinds}}", "as": "kind", "parallel": True, "collect": "all"}
SPEAKS = [{"id": name, "agent": "w", "prompt": name, "output": name} for name in ("one", "two")]


RECIPES: dict[str, dict[str, Any]] = {
    "asks": {"stages": [ASKS["stages"][0] | {"approval": GATE}]},
    "expires": {"stages": [ASKS["stages"][0] | {"approval": GATE | {"timeout": 1, "default": "approve"}}]},
    "middle": {"steps": [child("asks")]},
    "top": {"steps": [child("middle"), bash("after", "echo over")]},
    "many": {"context": {"kinds": ["x", "y"]}, "steps": [child("asks", **EACH)]},
    "waits": {"steps": [child("expires")]},
    "speaks": {"steps": SPEAKS},
    "fails": {"steps": [bash("paid", "echo once >> paid"), bash("try", "echo try >> tried; test -e fixed")]},
    "parent": {"steps": [child("fails")]},
    "grand": {"steps": [child("parent")]},
    "limited": {"steps": [child("speaks")]},
}


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Return a project with recipes that start runs of one another."""
    return amplifier_project.make(tmp_path, RECIPES)


def orders(said: str) -> list[list[str]]:
    """Return the words of the commands that a command names, with the first of several answers."""
    named = re.findall(r"(?:answer|continue) with: control-room (.*)|and then: control-room (.*)", said)
    return [shlex.split(first or second) for first, second in named]


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


def test_a_resume_continues_the_child_that_failed(project: programs.Project) -> None:
    """A resume of a run whose grandchild failed performs the grandchild's failed step alone once more, and agrees with
    its dry run."""
    failed = programs.control_room("run", "grand", project=project, code=1)
    (resume,) = orders(failed.stderr)
    again = programs.control_room(*resume, project=project, code=1)
    (project.path / "fixed").touch()
    preview = programs.asked(*resume, "--dry-run", project=project)
    done = programs.control_room(*resume, project=project)

    assert orders(again.stderr) == [resume]
    assert preview["ok"]
    assert "done" in done.stdout
    assert (project.path / "paid").read_text() == "once\n"
    assert (project.path / "tried").read_text() == "try\n" * 3


def test_a_cancelled_run_is_resumed_with_its_children(project: programs.Project) -> None:
    """A resume of a run that was cancelled with its grandchild asks the question of the grandchild again."""
    programs.control_room("run", "top", project=project, code=1)
    (top,) = runs_of(project, "top")
    programs.control_room("runs", "cancel", top["run_id"], project=project)
    asked = programs.control_room("runs", "resume", top["run_id"], project=project, code=1)
    (answer,) = orders(asked.stderr)
    programs.control_room(*answer, project=project)

    assert runs_of(project, "top")[0]["status"] == "done"


def test_a_denial_below_is_final(project: programs.Project) -> None:
    """After a gate of a grandchild was denied, no resume of the runs above it is named, and one is refused as in its
    dry run."""
    left = programs.control_room("run", "top", project=project, code=1)
    (answer,) = orders(left.stderr)
    denied = programs.control_room(*answer[:-1], "deny", project=project, code=1)
    (top,) = runs_of(project, "top")
    refused = programs.control_room("runs", "resume", top["run_id"], project=project, code=1)
    preview = programs.asked("runs", "resume", top["run_id"], "--dry-run", project=project, code=1)
    told = programs.asked("runs", "why", top["run_id"], project=project)

    assert orders(denied.stderr) == []
    assert "gate_denied" in refused.stderr
    assert preview["problems"][0]["code"] == "gate_denied"
    assert "act" not in told["chain"][0]
    assert "a denial is final" in told["sentence"]
