"""Runs that no process executes: the list, the run, its explanation, a dry run and the order itself agree."""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import amplifier_project, processes, programs

RECIPES: dict[str, dict[str, Any]] = {
    "slow": {
        "steps": [
            amplifier_project.bash("first", "echo begun"),
            amplifier_project.bash("last", "until test -e go; do sleep 0.05; done; echo over"),
        ]
    },
    "loops": {
        "context": {"l": ["1", "2"]},
        "steps": [
            amplifier_project.bash("q", "echo {{i}}") | {"foreach": "{{l}}", "as": "i"},
            amplifier_project.bash("b", "echo over"),
        ],
    },
    "argued": {
        "context": {"x": "1"},
        "steps": [
            amplifier_project.bash("a", "echo {{x}} >> said"),
            amplifier_project.bash("c", "test -e fixed"),
        ],
    },
}


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Return a project with a recipe whose last step waits for the file `go`, and a folder `sub`."""
    made = amplifier_project.make(tmp_path / "project", RECIPES)
    (made.path / "sub").mkdir()
    return made


def previewed(project: programs.Project, run_id: str) -> tuple[bool, str]:
    """Return whether a dry run says that a resume would be accepted, and why not."""
    found = programs.asked("runs", "resume", run_id, "--dry-run", project=project, code=None)
    return found["ok"], "".join(flaw["message"] for flaw in found["problems"])


def test_a_dry_run_agrees_with_the_resume_in_each_state(project: programs.Project) -> None:
    """A dry run refuses while a command executes the run and once it is done, each time in the words of the resume
    itself, and agrees to one whose process was killed."""
    environ = programs.environment(project)
    with processes.start("app", "run", "slow", environ=environ, folder=project.path) as begun:
        while not (found := amplifier_project.runs_of(project, "slow")) or found[0]["status"] != "running":
            assert begun.poll() is None
        run_id = found[0]["run_id"]
        busy, refused = (
            previewed(project, run_id),
            programs.control_room("runs", "resume", run_id, project=project, code=1),
        )
        begun.send_signal(signal.SIGKILL)
        begun.wait()
    left = previewed(project, run_id)
    (project.path / "go").touch()
    programs.control_room("runs", "resume", run_id, project=project)
    done, again = previewed(project, run_id), programs.control_room("runs", "resume", run_id, project=project, code=1)

    assert not busy[0]
    assert busy[1] in refused.stderr
    assert left == (True, "")
    assert not done[0]
    assert done[1] in again.stderr


def test_a_repeated_start_of_a_run_that_was_left_names_the_resume(project: programs.Project) -> None:
    """A start whose run a killed command has left is not followed without end: it is refused, and names the resume."""
    words = ("run", "slow", "--idempotency-key", "key-1")
    with processes.start("app", *words, environ=programs.environment(project), folder=project.path) as begun:
        assert begun.stdout is not None
        run_id = begun.stdout.readline().split()[1]
        begun.send_signal(signal.SIGKILL)
        begun.wait()
    refused = programs.control_room(*words, "--project", project.path, code=1)
    (project.path / "go").touch()
    (order,) = re.findall(r"continue it with: control-room (.*)", refused.stderr)
    programs.control_room(*shlex.split(order))
    repeated = programs.control_room(*words, project=project)

    assert f"run {run_id} of this key was left unfinished" in refused.stderr
    assert f"run {run_id} done" in repeated.stdout


def test_a_run_whose_folder_was_gone_is_paused_everywhere(project: programs.Project) -> None:
    """Without a service a run that a missing folder parked is paused in the list, the run and its explanation, which
    name the folder; once it is back, a resume of the command line continues it."""
    with programs.service(project) as service:
        run_id = service.start_run(recipe_id="slow", args={}, working_dir="sub")
        service.wait_for_step(run_id, "last")
        service.signal(signal.SIGKILL)
        service.ended()
    (project.path / "sub").rename(project.path / "away")
    with programs.service(project) as service:
        service.wait(run_id, "paused")
        service.stop()
    listed = amplifier_project.runs_of(project, "slow")
    shown = programs.asked("runs", "show", run_id, project=project)
    told = programs.asked("runs", "why", run_id, project=project)
    (project.path / "away").rename(project.path / "sub")
    (project.path / "sub" / "go").touch()
    agreed = previewed(project, run_id)
    programs.control_room("runs", "resume", run_id, project=project)

    assert [run["status"] for run in (listed[0], shown, told)] == ["paused"] * 3
    assert (listed[0]["reason"], shown["reason"]) == ("workspace_missing",) * 2
    assert str(project.path / "sub") in told["sentence"]
    assert told["chain"][-1]["act"] == f"control-room runs unpause {run_id}"
    assert agreed == (True, "")
    assert amplifier_project.runs_of(project, "slow")[0]["status"] == "done"


def test_a_changed_argument_of_a_finished_step_names_what_works(project: programs.Project) -> None:
    """A resume with another argument of a finished step names argument and step, in its dry run too; going back to the
    step as the message says, and a fork, perform it with the new argument."""
    failed = programs.asked("run", "argued", project=project, code=1)
    resume = ("runs", "resume", failed["run_id"], "--arg", "x=2")
    refused = programs.control_room(*resume, project=project, code=2)
    preview = programs.asked(*resume, "--dry-run", project=project, code=1)
    forked = programs.asked("runs", "fork", failed["run_id"], "--arg", "x=2", project=project, code=1)
    (project.path / "fixed").touch()
    programs.control_room(*resume, "--from", "a", project=project)

    message = preview["problems"][0]["message"]
    assert message in refused.stderr
    assert message.startswith("the argument x changes the finished step 'a'")
    assert "--from a " in message
    assert (project.path / "said").read_text() == "1\n2\n2\n"
    assert forked["forked_from"] == failed["run_id"]


def test_a_longer_loop_of_a_fork_is_named(project: programs.Project) -> None:
    """A preview of a fork with one more item says that the step after the loop comes after the new iteration."""
    done = programs.asked("run", "loops", project=project)
    longer = ("--arg", 'l:=["1","2","3"]', "--dry-run")
    preview = programs.asked("runs", "fork", done["run_id"], *longer, project=project)
    again = [(step["key"], step["why"]) for step in preview["steps"] if step["action"] == "again"]

    assert again == [("b", "the new run performs 'q[2]' before it, or in its place")]
