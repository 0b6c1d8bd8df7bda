"""Runs of `agent-recipes` in their environment: stopped, unread, beside other runs, within a run."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import programs, recipe_programs
from tests.acceptance.recipe_programs import Project, agent_recipes, control_room, going, make_project, shown, until
from tests.unit.dialects.agent_recipes import recipe_harness
from tests.unit.dialects.agent_recipes.recipe_harness import says

SAID = ("small", "--backend", "said")
HANGING = recipe_harness.STRAIGHT | {"commit": [{"hang": True}, says("committed")]}
"""Replies of an agent that hangs at its second step until it is asked again."""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Create a project."""
    return make_project(tmp_path / "project")


def test_an_interrupted_run_prints_its_replies_and_continues(project: Project):
    """Replies are printed as they come; Ctrl-C ends the program with 130, after a line with the command to continue."""
    project.script(HANGING)
    grace: dict[str, Any] = {"CONTROL_ROOM_STOP_GRACE_SECONDS": "0.2"}
    with going(*SAID, "--verbose", project=project, **grace) as process:
        until(process.stdout, '{"outcome": "no-issues"}')
        until(process.stderr, "[orchestration] Step: commit")
        process.send_signal(signal.SIGINT)
        rest, told = process.communicate(timeout=60)
    run_id = project.run_ids()[0]
    hint = f"interrupted; continue with: control-room runs resume {run_id}"

    assert process.returncode == 130
    assert rest.strip() == ""
    assert told.splitlines()[-1] == hint
    assert shown(run_id, project)["status"] == "running"
    assert control_room(*hint.partition("control-room ")[2].split(), project=project).stdout
    assert shown(run_id, project)["ending"]["reason"] == "changes-committed"
    assert [step["key"] for step in shown(run_id, project)["steps"]] == ["review", "commit"]


def test_the_way_on_names_a_project_elsewhere(project: Project, tmp_path: Path):
    """If the project is not the current folder, the command that continues a run names it."""
    project.script({"*": {"error": {"code": "agent_error", "message": "It broke."}}})
    failed = agent_recipes(*SAID, "--working-dir", project.path, project=project, code=4, cwd=tmp_path)
    run_id = project.run_ids()[0]
    hint = f"failed; continue with: control-room runs resume {run_id} --project {project.path}"
    project.script(recipe_harness.STRAIGHT)

    assert failed.stderr.splitlines() == ["agent-recipes: It broke. [agent_error]", hint]
    assert programs.control_room(*hint.partition("control-room ")[2].split()).stdout


def test_a_reader_that_goes_away_stops_the_run(project: Project):
    """When stdout has no reader any more, the run stops without a traceback, and can be resumed."""
    project.script(
        {
            "review": says("issues-found"),
            "fix": {"text": says("complete"), "delay_seconds": 2},
            "review#2": [{"hang": True}, says("no-issues")],
            "commit": says("committed"),
        }
    )
    with going(*SAID, project=project, CONTROL_ROOM_STOP_GRACE_SECONDS="0.2") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        told = process.stderr.read()
        code = process.wait(60)
    run_id = project.run_ids()[0]

    assert code == 141
    assert told == f"interrupted; continue with: control-room runs resume {run_id}\n"
    assert control_room("runs", "resume", run_id, project=project).stdout


@pytest.mark.slow
def test_closed_streams_do_not_change_the_exit_code(project: Project):
    """A run without any output stream ends normally."""
    command = f"exec {' '.join(recipe_programs.COMMAND)} {' '.join(SAID)} --verbose >&- 2>&-"
    done = subprocess.run(
        ["sh", "-c", command], env=recipe_programs.environment(project), cwd=project.path, check=False, timeout=60
    )

    assert done.returncode == 0
    assert shown(project.run_ids()[0], project)["status"] == "done"


@pytest.mark.slow
def test_replies_cannot_steer_a_terminal(project: Project):
    """On a terminal, control characters of a reply are escaped."""
    project.script(recipe_harness.STRAIGHT | {"review": says("no-issues", "\x1b[2J\x1b]0;mine\x07")})
    outer, inner = pty.openpty()
    with subprocess.Popen(
        [*recipe_programs.COMMAND, *SAID],
        env=recipe_programs.environment(project),
        cwd=project.path,
        stdout=inner,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(inner)
        seen = _read_terminal(outer)
    os.close(outer)

    assert process.returncode == 0
    assert b"\\x1b[2J\\x1b]0;mine\\x07" in seen
    assert b"\x1b" not in seen


# -- beside other runs


def test_a_workspace_is_held_by_one_process(project: Project):
    """While a run works in a folder, another process is refused there with the reason, until the first has died."""
    project.script(HANGING)
    (project.path / "other").mkdir()
    with going(*SAID, project=project) as process:
        until(process.stdout, '{"outcome": "no-issues"}')
        run_id = project.run_ids()[0]
        refused = agent_recipes(*SAID, project=project, code=5)
        also = control_room("run", "small", "--arg", "backend=said", project=project, code=1)
        before = project.run_ids()
        project.script(recipe_harness.STRAIGHT)
        elsewhere = agent_recipes(*SAID, "--working-dir", "other", project=project)
        process.kill()
        process.wait()
    again = agent_recipes(*SAID, project=project)

    line = f"the workspace {project.path} is held by run {run_id}, which is running [workspace_busy]\n"
    assert refused.stderr == f"agent-recipes: {line}"
    assert also.stderr == f"control-room: {line}"
    assert before == [run_id]
    assert elsewhere.stdout.splitlines()[-1] == again.stdout.splitlines()[-1] == "changes-committed"


def test_an_unfinished_run_of_a_dead_process_holds_nothing(project: Project):
    """An unfinished run of a dead process does not block its folder, and cannot be resumed beside another run there."""
    project.script(HANGING)
    with going(*SAID, project=project) as process:
        until(process.stdout, '{"outcome": "no-issues"}')
    first = project.run_ids()[0]
    with going(*SAID, project=project) as process:
        until(process.stdout, '{"outcome": "no-issues"}')
        refused = control_room("runs", "resume", first, project=project, code=1)
    resumed = control_room("runs", "resume", first, project=project)

    assert "[workspace_busy]" in refused.stderr
    assert resumed.stdout.splitlines()[-1] == f"run {first} done"


def test_a_run_of_the_service_keeps_its_workspace(project: Project):
    """A folder with a run of the service stays reserved while the service is down, and the refusal names the run."""
    project.script(HANGING)
    with programs.service(programs.Project(project.path)) as service:
        run_id = service.start_run(recipe_id="small", args={"backend": "said"})
        service.wait_for_step(run_id, "commit")
        beside = agent_recipes(*SAID, project=project, code=5)
        service.signal(signal.SIGKILL)
        service.ended()
    after = agent_recipes(*SAID, project=project, code=5)
    control_room("runs", "cancel", run_id, project=project)
    project.script(recipe_harness.STRAIGHT)

    assert f"is held by run {run_id}, which is running [workspace_busy]" in beside.stderr
    assert beside.stderr == after.stderr
    assert agent_recipes(*SAID, project=project).stdout.splitlines()[-1] == "changes-committed"


def test_the_service_waits_for_a_run_of_another_process(project: Project):
    """While a command works in a folder, a run of the service there is pending with the reason, and then starts."""
    project.script(HANGING)
    with going(*SAID, project=project) as process:
        until(process.stdout, '{"outcome": "no-issues"}')
        with programs.service(programs.Project(project.path)) as service:
            run_id = service.start_run(recipe_id="small", args={"backend": "said"})
            waiting = service.wait_until(run_id, lambda run: run["reason"] == "workspace_busy")
            process.kill()
            process.wait()
            service.wait_for_step(run_id, "commit")

    assert (waiting["status"], waiting["holder"], waiting["steps"]) == ("pending", None, [])


# -- within a run


def test_a_run_within_a_run_may_work_in_its_workspace(project: Project):
    """A run that another run starts may enter its workspace, one at a time."""
    project.script(HANGING | {"restart1/review": "unused"})
    with going(*SAID, project=project) as outer:
        until(outer.stdout, '{"outcome": "no-issues"}')
        outer_id = project.run_ids()[0]
        within: dict[str, Any] = {"CONTROL_ROOM_RUN_ID": outer_id, "CONTROL_ROOM_DEPTH": "0"}
        with going(*SAID, project=project, **within) as inner:
            until(inner.stdout, '{"outcome": "no-issues"}')
            refused = agent_recipes(*SAID, project=project, code=5, **within)
            (inner_id,) = {*project.run_ids()} - {outer_id}
            deeper: dict[str, Any] = {"CONTROL_ROOM_RUN_ID": inner_id, "CONTROL_ROOM_DEPTH": "1"}
            project.script(recipe_harness.STRAIGHT)
            agent_recipes(*SAID, project=project, **deeper)
            deepest = project.start()
    parents = shown(deepest["run_id"], project)["parent_run_id"], shown(inner_id, project)["parent_run_id"]

    assert inner_id in refused.stderr
    assert parents == (inner_id, outer_id)
    assert deepest["depth"] == 2


def test_depth_counts_over_projects(project: Project, tmp_path: Path):
    """A run started by a run of another project knows its depth, although its parent is unknown here."""
    other = make_project(tmp_path / "other")
    given: dict[str, Any] = {"CONTROL_ROOM_RUN_ID": "20260101T000000Z-absent", "CONTROL_ROOM_DEPTH": "1"}
    agent_recipes(*SAID, project=other, **given)
    refused = agent_recipes(*SAID, project=other, code=5, **given, CONTROL_ROOM_MAX_DEPTH="1")
    start = other.start()

    assert (start["depth"], start["parent_run_id"]) == (2, None)
    assert refused.stderr == "agent-recipes: maximum run depth is 1; this run would be at depth 2 [depth_exceeded]\n"


def _read_terminal(descriptor: int) -> bytes:
    seen = b""
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:
            return seen
        if not part:
            return seen
        seen += part
