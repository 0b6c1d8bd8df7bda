"""The command line as users run it: real processes, exit codes, machine-readable output."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app import resources
from tests.acceptance import processes, programs

HEAVY = (
    "alembic", "asyncio", "fastapi", "httpx", "jsonschema", "pydantic", "re2", "sqlalchemy", "sqlmodel", "uvicorn",
)  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project."""
    return programs.make_project(tmp_path / "project")


def run_small(project: programs.Project, *options: str, code: int = 0, **given: str) -> dict[str, object]:
    """Run the small recipe in process and return its detail."""
    detail: dict[str, object] = programs.asked(
        "run", "small", "--arg", "words=gate", *options, project=project, code=code, **given
    )
    return detail


# -- help and version


def test_help_loads_nothing_heavy():
    """Help imports neither the web framework nor the database."""
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "app", "--help"],
        env=programs.environment(None),
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.split("|")[-1].strip().split(".")[0] for line in told.stderr.splitlines() if "|" in line}

    assert "Exit codes" in told.stdout
    assert not imported & set(HEAVY)


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], ["runs", "--help"], ["run", "--help"]])
def test_help_and_version_end_well(arguments: list[str]):
    """Help and version end with 0."""
    assert programs.control_room(*arguments).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["run"],
        ["run", "small", "--arg", "words"],
        ["run", "small", "--arg", "words:=["],
        ["run", "small", "--args-file", "/absent.json"],
        ["run", "small", "--detach"],
        ["run", "small", "--priority", "1000"],
        ["runs", "list", "--status", "odd"],
        ["runs", "list", "--created-after", "yesterday"],
        ["runs", "show", "x", "--server", "http://127.0.0.1:1", "--project", "/tmp"],
    ],
)
def test_wrong_use_is_exit_code_2(project: programs.Project, arguments: list[str]):
    """A wrong command line ends with 2 and an error on stderr."""
    refused = programs.control_room(*arguments, project=project, code=2)

    assert refused.stderr.strip()
    assert refused.stdout == ""


# -- run


def test_run_ends_done_and_shows_its_steps(project: programs.Project):
    """A run in process needs no server, prints a line for each step, and ends with 0."""
    done = programs.control_room("run", "small", "--arg", "words=gate", project=project)
    lines = [line.split() for line in done.stdout.splitlines()]

    assert ["a", "running", "find"] in lines
    assert [line[:3] for line in lines if "done" in line[:2]][:3] == [
        ["a", "done", "find"],
        ["b", "done", "brief"],
        ["b", "done", "draft"],
    ]
    assert lines[-1][0] == "run"
    assert lines[-1][-1] == "done"


def test_run_as_json_is_its_detail(project: programs.Project):
    """With --json the output contains only the run's detail."""
    detail = run_small(project, "--label", "book=one", "--priority", "3", "--description", "Find the gate")

    assert detail["status"] == "done"
    assert detail["task"] == {
        "description": "Find the gate",
        "session_plan_task_id": None,
        "initial_args": {"words": "gate"},
    }
    assert detail["labels"] == {"book": "one"}
    assert detail["priority"] == 3


def test_failed_run_is_exit_code_1(project: programs.Project):
    """A failed run ends with 1 and prints the reason on stderr."""
    project.say(draft={"error": {"code": "model_crashed", "message": "the model broke"}})
    failed = programs.control_room("run", "small", "--arg", "words=gate", project=project, code=1)

    assert "the model broke" in failed.stderr
    assert run_small(project, code=1)["status"] == "failed"


def test_unknown_recipe_is_exit_code_4_with_the_nearest(project: programs.Project):
    """An unknown recipe is not found, and the message suggests the nearest name."""
    refused = programs.control_room("run", "smal", project=project, code=4)

    assert "control-room: there is no recipe 'smal'; did you mean small" in refused.stderr
    assert f"the project is {project.path}; --project DIR names another" in refused.stderr


def test_all_unfitting_arguments_are_reported(project: programs.Project):
    """Missing and undeclared arguments are both reported, with their paths."""
    refused = programs.control_room("run", "small", "--arg", "wrods=gate", project=project, code=2)

    assert "$.args.words" in refused.stderr
    assert "$.args.wrods" in refused.stderr


@pytest.mark.model
def test_text_for_a_list_is_refused_with_the_list_notation(project: programs.Project):
    """An argument of the wrong type is refused with the notation for other types on the command line."""
    refused = programs.control_room(
        "run", "analytical_consistency", "--arg", "scene_paths=Story", "--dry-run", project=project, code=2
    )
    given = programs.control_room(
        "run", "analytical_consistency", "--arg", 'scene_paths:=["Story"]', "--dry-run", project=project
    )

    assert """--arg 'NAME:=["…"]'""" in refused.stderr
    assert '["Story"]' in given.stdout


def test_arguments_come_from_file_and_command_line(project: programs.Project):
    """Arguments of a file and of the command line are merged."""
    file = project.write("args.json", {"words": "tower"})
    first = programs.asked("run", "small", "--args-file", file, project=project)
    second = programs.asked("run", "small", "--args-file", file, "--arg", 'words:="gate"', project=project)

    assert first["task"]["initial_args"] == {"words": "tower"}
    assert second["task"]["initial_args"] == {"words": "gate"}


def test_dry_run_starts_nothing(project: programs.Project):
    """A dry run checks the request, shows the steps and leaves no run."""
    plan = programs.asked("run", "small", "--arg", "words=gate", "--dry-run", project=project)
    refused = programs.control_room("run", "small", "--dry-run", project=project, code=2)

    assert plan["args"] == {"words": "gate"}
    assert [node["id"] for node in plan["graph"]["nodes"]][:3] == ["find", "brief", "draft"]
    assert "words" in refused.stderr
    assert not (project.data / "runs").exists()
    assert "draft" in programs.control_room("run", "small", "--arg", "words=x", "--dry-run", project=project).stdout


def test_run_counts_the_runs_above_it_in_another_project(project: programs.Project):
    """A command inside a run of another project starts a run, within the same depth limit."""
    above: dict[str, Any] = {"CONTROL_ROOM_RUN_ID": "20260210T143000Z-abc123"}
    shown = run_small(project, CONTROL_ROOM_DEPTH="1", **above)
    start = json.loads((project.data / "runs" / str(shown["run_id"]) / "start.json").read_text())
    words = ("run", "small", "--arg", "words=gate")
    refused = programs.control_room(*words, project=project, code=2, CONTROL_ROOM_DEPTH="3", **above)

    assert (shown["status"], start["depth"]) == ("done", 2)
    assert "[depth_exceeded]" in refused.stderr


def test_an_interrupted_run_names_its_resume_command(project: programs.Project):
    """Ctrl-C stops a run with exit code 130, and `runs resume` finishes the run."""
    project.say(draft=[{"hang": True}, "later"])
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "run", "small", "--arg", "words=gate"],
        env=programs.environment(project, CONTROL_ROOM_STOP_GRACE_SECONDS="0.2"),
        cwd=project.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    for line in process.stdout:
        if line.split()[1:3] == ["running", "draft"]:
            break
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    run_id = first.split()[1]

    assert process.returncode == 130
    assert f"control-room runs resume {run_id}" in told
    assert programs.asked("runs", "show", run_id, project=project)["status"] == "running"
    assert programs.asked("runs", "resume", run_id, project=project)["status"] == "done"


def test_a_second_ctrl_c_stops_the_step_in_flight(project: programs.Project):
    """The second Ctrl-C ends a step within its grace period with 130 and the order to resume.

    It reaches the programs after a pipe as well, so that the output has no reader any more.
    """
    project.say(draft=[{"hang": True}, "later"])
    process = processes.start(
        "app", "run", "small", "--arg", "words=gate",
        environ=programs.environment(project, CONTROL_ROOM_STOP_GRACE_SECONDS="600"), folder=project.path,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        run_id = process.stdout.readline().split()[1]
        while process.stdout.readline().split()[1:3] != ["running", "draft"]:
            pass
        process.send_signal(signal.SIGINT)
        stopping = process.stderr.readline()
        process.stdout.close()
        process.send_signal(signal.SIGINT)
        told = process.stderr.read()
        code = process.wait(60)

    assert stopping == "stopping: the step in flight has 600 seconds to end; interrupt again to stop at once\n"
    assert (code, told) == (130, f"\ncontrol-room: interrupted; continue with: control-room runs resume {run_id}\n")
    assert programs.asked("runs", "resume", run_id, project=project)["status"] == "done"


# The kernel reports the closing of a terminal to the session leader that opened it first.
IN_A_TERMINAL = """
import os, sys
os.setsid()
terminal = os.open(sys.argv[1], os.O_RDWR)
for number in range(3):
    os.dup2(terminal, number)
os.execv(sys.executable, [sys.executable, "-m", "app", *sys.argv[2:]])
"""


@pytest.mark.slow
def test_a_closed_terminal_lets_the_step_in_flight_end(project: programs.Project):
    """After the terminal closes, the step in progress is recorded within the grace period, and not performed again."""
    project.say(brief=[{"text": "paid for", "delay_seconds": 2}, {"text": "paid for twice"}])
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL, os.ttyname(inner), "run", "small", "--arg", "words=gate"],
        env=programs.environment(project, CONTROL_ROOM_STOP_GRACE_SECONDS="60"),
        cwd=project.path,
    )
    shown = b""
    while not re.search(rb"running +brief", shown):
        shown += os.read(outer, 4096)
    os.close(inner)
    os.close(outer)
    process.wait(timeout=120)
    (run,) = programs.asked("runs", "list", project=project)
    steps = programs.asked("runs", "steps", run["run_id"], project=project)

    assert run["status"] == "running"
    assert [step["key"] for step in steps] == ["find", "brief"]
    assert programs.asked("runs", "resume", run["run_id"], project=project)["status"] == "done"


def test_run_beside_a_service_is_listed_by_it(project: programs.Project):
    """A run in process works while a service runs, and the service lists it."""
    with programs.service(project) as service:
        run_id = run_small(project)["run_id"]
        with service.http() as http:
            listed = {run["run_id"]: run["status"] for run in http.get("/api/runs").json()}
            shown = http.get(f"/api/runs/{run_id}").json()

    assert listed[run_id] == "done"
    assert shown["status"] == "done"


def test_a_closed_output_pipe_ends_the_command_quietly(project: programs.Project):
    """When the reader of a pipe disappears, the command ends without output."""
    run_small(project)
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "runs", "list"],
        env=programs.environment(project),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    told = process.stderr.read()
    process.stderr.close()

    assert process.wait(60) == 141
    assert told == ""


def test_a_reader_that_goes_away_stops_the_run(project: programs.Project):
    """When the output of a run has no reader any more, the run stops, and the order that continues it is printed."""
    project.say(brief=[{"text": "a brief", "delay_seconds": 1}], draft=[{"hang": True}])
    process = processes.start(
        "app", "run", "small", "--arg", "words=gate",
        environ=programs.environment(project, CONTROL_ROOM_STOP_GRACE_SECONDS="0.2"), folder=project.path,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        run_id = process.stdout.readline().split()[1]
        process.stdout.close()
        told = process.stderr.read()
        code = process.wait(60)

    assert (code, told) == (141, f"interrupted; continue with: control-room runs resume {run_id}\n")


def test_a_run_at_its_limit_names_the_orders_with_its_project(project: programs.Project):
    """A run that its limit has paused names the orders that send it on, with the project of the command."""
    words = ("run", "small", "--arg", "words=gate", "--max-calls", "1", "--project", project.path)
    told = programs.control_room(*words, code=1).stderr
    (run,) = programs.asked("runs", "list", project=project)

    assert told.splitlines()[-2:] == [
        f"  continue with: control-room runs limits {run['run_id']} --max-calls N --project {project.path}",
        f"  and then: control-room runs unpause {run['run_id']} --project {project.path}",
    ]


def test_output_that_another_program_made_non_blocking_is_whole(project: programs.Project):
    """A slow reader receives the whole output through a pipe that a program before has made non-blocking."""
    whole = programs.asked("recipes", "list", project=project)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    command = [sys.executable, "-m", "app", "recipes", "list", "--json"]
    with subprocess.Popen(command, env=programs.environment(project), cwd=project.path, stdout=writing) as process:
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:
            told = pipe.read()

    assert process.returncode == 0
    assert len(told) > 4096
    assert json.loads(told) == whole


def test_a_fork_without_a_reader_names_its_resume_command(project: programs.Project):
    """A fork whose output has no reader stops before it has printed a line, and names the order that continues it."""
    run_id = str(run_small(project)["run_id"])
    project.say(draft=[{"hang": True}])
    environ = programs.environment(project, CONTROL_ROOM_STOP_GRACE_SECONDS="0.2")
    words = ("runs", "fork", run_id, "--from", "draft")
    process = processes.start("app", *words, environ=environ, folder=project.path)
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdout.close()
        told = process.stderr.read()
        code = process.wait(60)
    forked = programs.asked("runs", "list", "--limit", "1", project=project)[0]["run_id"]

    assert (code, told) == (141, f"interrupted; continue with: control-room runs resume {forked}\n")


def test_a_full_disk_under_the_output_stops_the_run(project: programs.Project):
    """When the output of a run cannot be written, the run stops, and the order that continues it is printed."""
    project.say(brief=[{"text": "a brief", "delay_seconds": 1}], draft=[{"hang": True}])
    command = f"exec {sys.executable} -m app run small --arg words=gate > /dev/full"
    environ = programs.environment(project, CONTROL_ROOM_STOP_GRACE_SECONDS="0.2")
    done = subprocess.run(["sh", "-c", command], env=environ, cwd=project.path, check=False, stderr=subprocess.PIPE)
    (run,) = programs.asked("runs", "list", project=project)

    assert done.returncode == 5
    assert f"interrupted; continue with: control-room runs resume {run['run_id']}\n" in done.stderr.decode()
    assert "No space left on device" in done.stderr.decode()


def test_closed_output_does_not_change_the_exit_code(project: programs.Project):
    """A command with closed output streams keeps its exit code."""
    command = f"exec {sys.executable} -m app runs show absent >&- 2>&-"
    done = subprocess.run(["sh", "-c", command], env=programs.environment(project), cwd=project.path, check=False)

    assert done.returncode == 4


def test_terminal_without_unicode_survives(project: programs.Project):
    """On a terminal with only ASCII, the output of every character succeeds."""
    project.say(draft="Ærendil — naïve “quotes” 東京")
    arguments = ("run", "small", "--arg", "words=gate")
    done = programs.program(*arguments, project=project, PYTHONIOENCODING="ascii")
    printed = programs.program(*arguments, "--json", project=project, PYTHONIOENCODING="ascii").stdout

    assert "done" in done.stdout
    assert json.loads(printed)["cache_summary"]["text"]["preview"] == "Ærendil — naïve “quotes” 東京"


# -- runs


def test_runs_are_listed_and_filtered(project: programs.Project):
    """Lists can be filtered and limited, and an empty list is not an error."""
    assert programs.asked("runs", "list", project=project) == []
    assert programs.control_room("runs", "list", project=project).stdout == "no runs\n"
    assert not (project.data / "runs").exists()
    first = run_small(project, "--label", "book=one")["run_id"]
    second = run_small(project)["run_id"]
    listed = programs.asked("runs", "list", project=project)

    assert {run["run_id"] for run in listed} == {first, second}
    assert programs.asked("runs", "list", "--label", "book=one", project=project)[0]["run_id"] == first
    assert programs.asked("runs", "list", "--status", "failed", project=project) == []
    assert programs.asked("runs", "list", "--created-before", "2020-01-01T00:00:00Z", project=project) == []
    assert len(programs.asked("runs", "list", "--limit", "1", project=project)) == 1
    assert str(first) in programs.control_room("runs", "list", project=project).stdout


def test_parts_of_a_run_can_be_read(project: programs.Project):
    """Detail, steps, slots and logs of a run are printed for people and as JSON."""
    run_id = str(run_small(project)["run_id"])
    detail = programs.asked("runs", "show", run_id, project=project)
    steps = programs.asked("runs", "steps", run_id, project=project)
    slot = programs.asked("runs", "slot", run_id, "text", project=project)
    logs = programs.asked("runs", "logs", run_id, project=project)

    assert detail["run_id"] == run_id
    assert [line["step_id"] for line in steps][:3] == ["find", "brief", "draft"]
    assert {"prev", "output_hash", "attempt"} <= set(steps[0])
    assert slot["type"] == "artifact"
    assert programs.control_room("runs", "slot", run_id, "text", project=project).stdout == programs.REPLIES["draft"]
    assert programs.asked("runs", "slot", run_id, "found", project=project)["type"] == "pointer"
    assert set(programs.asked("runs", "slot", run_id, project=project)) == {"found", "plan", "text"}
    assert "brief.1.prompt.md" in logs
    assert "Outline it." in programs.control_room("runs", "logs", run_id, "brief.1.prompt.md", project=project).stdout
    for verb in ("show", "steps", "logs", "slot"):
        assert programs.control_room("runs", verb, run_id, project=project).stdout.strip()


def test_following_an_ended_run_prints_its_events(project: programs.Project):
    """Following an ended run prints its events and ends with the run's exit code; as JSON, one event a line."""
    project.say(draft={"error": {"code": "model_crashed", "message": "the model broke"}})
    run_id = str(run_small(project, code=1)["run_id"])
    told = programs.control_room("runs", "follow", run_id, "--json", project=project, code=1)
    events = [json.loads(line) for line in told.stdout.splitlines()]

    assert events[0]["type"] == "run.created"
    assert events[-1]["type"] == "run.ended"
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    after = str(events[-2]["seq"])
    rest = programs.control_room("runs", "follow", run_id, "--json", "--after", after, project=project, code=1)
    assert len(rest.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "show", "20260101T000000Z-absent"],
        ["runs", "follow", "20260101T000000Z-absent"],
        ["runs", "steps", "20260101T000000Z-absent"],
        ["runs", "slot", "20260101T000000Z-absent", "x"],
        ["runs", "logs", "20260101T000000Z-absent"],
        ["runs", "cancel", "20260101T000000Z-absent"],
        ["runs", "resume", "20260101T000000Z-absent"],
        ["runs", "pause", "20260101T000000Z-absent"],
        ["runs", "unpause", "20260101T000000Z-absent"],
        ["runs", "delete", "20260101T000000Z-absent"],
        ["runs", "verify", "20260101T000000Z-absent"],
        ["runs", "repair", "20260101T000000Z-absent", "--yes"],
        ["runs", "show", "../../etc"],
        ["runs", "show", ""],
        ["recipes", "show", "absent"],
        ["recipes", "validate", "absent"],
        ["recipes", "validate", "absent.json"],
    ],
)
def test_a_missing_object_ends_with_exit_code_4(project: programs.Project, arguments: list[str]):
    """A run, recipe or file that does not exist ends a command with 4 and a short error."""
    refused = programs.control_room(*arguments, project=project, code=4)

    assert len(refused.stderr.splitlines()) <= 2
    assert refused.stderr.startswith("control-room: ")


def test_failed_run_is_resumed_with_another_argument(project: programs.Project):
    """Resume continues from the failed step to the end, and does not repeat finished steps."""
    project.say(draft=[{"error": {"code": "model_crashed", "message": "the model broke"}}, "better"])
    run_id = str(run_small(project, code=1)["run_id"])
    resumed = programs.asked("runs", "resume", run_id, project=project)
    steps = programs.asked("runs", "steps", run_id, project=project)

    assert resumed["status"] == "done"
    assert [(line["key"], line["attempt"]) for line in steps][:4] == [
        ("find", 1),
        ("brief", 1),
        ("draft", 1),
        ("draft", 2),
    ]


def test_resume_from_an_earlier_step(project: programs.Project):
    """Resume can begin at an earlier step, and an unknown step is refused."""
    project.say(draft=[{"error": {"code": "model_crashed", "message": "the model broke"}}, "better"])
    run_id = str(run_small(project, code=1)["run_id"])

    assert (
        "nowhere"
        in programs.control_room("runs", "resume", run_id, "--from", "nowhere", project=project, code=2).stderr
    )
    assert programs.asked("runs", "resume", run_id, "--from", "brief", project=project)["status"] == "done"
    keys = [line["key"] for line in programs.asked("runs", "steps", run_id, project=project)]
    assert keys[:5] == ["find", "brief", "draft", "brief", "draft"]


def test_moves_that_do_not_fit_are_exit_code_1(project: programs.Project):
    """An ended run cannot be cancelled, paused, unpaused or resumed, and the message names its state."""
    run_id = str(run_small(project)["run_id"])

    for verb in ("cancel", "pause", "unpause", "resume"):
        refused = programs.control_room("runs", verb, run_id, project=project, code=1)
        assert "done" in refused.stderr


def test_run_is_deleted_and_gone(project: programs.Project):
    """A finished run can be deleted."""
    run_id = str(run_small(project)["run_id"])
    programs.control_room("runs", "delete", run_id, project=project)

    assert programs.asked("runs", "list", project=project) == []
    assert not (project.data / "runs" / run_id).exists()


def test_interrupted_run_can_be_cancelled(project: programs.Project):
    """A run whose process died is ended by `runs cancel`."""
    project.say(draft={"hang": True})
    with programs.service(project) as service:
        run_id = service.start_run()
        service.wait_for_step(run_id, "draft")
        service.signal(signal.SIGKILL)
        service.ended()

    assert programs.asked("runs", "cancel", run_id, project=project) == {"run_id": run_id, "status": "cancelled"}
    assert programs.asked("runs", "show", run_id, project=project)["status"] == "cancelled"


def test_show_warns_of_a_run_that_no_command_executes(project: programs.Project):
    """While a command executes a run, `show` prints no warning; after the command is killed, `show` and `why` do."""
    project.say(draft={"hang": True})
    environ = programs.environment(project)
    process = processes.start("app", "run", "small", "--arg", "words=gate", environ=environ, folder=project.path)
    assert process.stdout is not None
    run_id = process.stdout.readline().split()[1]
    assert any("draft" in line for line in iter(process.stdout.readline, ""))
    shown = programs.control_room("runs", "show", run_id, project=project)
    process.kill()
    with process:
        process.wait()
    left = programs.control_room("runs", "show", run_id, project=project)
    told = programs.control_room("runs", "why", run_id, project=project)

    assert shown.stderr == ""
    sentence = "Nothing executes it: the command that did has ended"
    assert left.stderr.startswith(f"{sentence}; continue with: control-room runs resume {run_id}")
    assert told.stdout.startswith(f"{sentence}; Step draft was under way when its process ended.")


def test_an_unknown_recipe_leaves_nothing(tmp_path: Path):
    """A mistyped recipe in a folder without a project leaves that folder unchanged."""
    refused = programs.control_room("run", "absent", "--project", tmp_path, code=4)
    nowhere = programs.control_room("run", "absent", "--project", tmp_path / "absent", code=5)

    assert "there is no recipe 'absent'" in refused.stderr
    assert "does not exist" in nowhere.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_failure_is_printed_once(project: programs.Project, tmp_path: Path):
    """If output and errors share one file, the reason of a failure is in it once, as the last line of the output."""
    project.say(draft={"error": {"code": "model_crashed", "message": "the model broke"}})
    environ, file = programs.environment(project), tmp_path / "told"
    with file.open("w") as place:
        command = [sys.executable, "-m", "app", "run", "small", "--arg", "words=gate"]
        subprocess.run(command, cwd=project.path, env=environ, stdout=place, stderr=place, check=False, timeout=100)
        run_id = programs.asked("runs", "list", project=project)[0]["run_id"]
        journal = project.data / "runs" / run_id / "steps.jsonl"
        journal.write_text(journal.read_text().replace("dusk", "dawn", 1))
        command = [sys.executable, "-m", "app", "runs", "follow", run_id]
        subprocess.run(command, cwd=project.path, env=environ, stdout=place, stderr=place, check=False, timeout=100)
    ends = [line for line in file.read_text().splitlines() if "failed: " in line]

    # Both commands show how the run ended; once the run is damaged, its present error follows.
    crashed = [line.partition(":")[0] for line in ends if "the model broke [model_crashed]" in line]
    assert crashed == [f"run {run_id} failed"] * 2
    assert ends[-1].startswith("failed: ")
    assert "[journal_corrupt]" in ends[-1]


def test_a_refused_setting_is_named_as_it_was_given(project: programs.Project):
    """The error names a refused value by the option that set it, or else by its setting."""
    missing = str(project.path / "absent")
    typed = programs.control_room("runs", "list", "--project", missing, code=5)
    served = programs.control_room("serve", "--project", missing, "--port", "99999", code=5)
    kept = programs.control_room("runs", "list", CONTROL_ROOM_PROJECT=missing, code=5)

    assert f"--project {missing} does not exist" in typed.stderr
    assert "--port: must be" in served.stderr
    assert f"CONTROL_ROOM_PROJECT {missing} does not exist" in kept.stderr


def test_an_option_before_its_command_is_explained():
    """An option of a command before the command's name is refused, and the message names the right place."""
    for words in (["--server", "http://127.0.0.1:1", "runs", "list"], ["runs", "--json", "list"]):
        refused = programs.control_room(*words, code=2)

        assert "Options of a command follow its name." in refused.stderr


def test_damage_is_found_and_repaired(project: programs.Project):
    """`verify` finds a changed journal line; `repair` cuts it off only with `--yes`, and the run can be resumed."""
    run_id = str(run_small(project)["run_id"])
    assert programs.asked("runs", "verify", run_id, project=project)["ok"] is True
    journal = project.data / "runs" / run_id / "steps.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join([lines[0], lines[1].replace("dusk", "dawn"), *lines[2:]]))
    found = programs.asked("runs", "verify", run_id, project=project, code=1)
    programs.control_room("runs", "repair", run_id, project=project)

    assert found["ok"] is False
    assert "steps.jsonl" in json.dumps(found)
    assert len(journal.read_text().splitlines()) == len(lines)
    programs.control_room("runs", "repair", run_id, "--yes", project=project)
    assert len(journal.read_text().splitlines()) == 1
    assert programs.asked("runs", "resume", run_id, project=project)["status"] == "done"


# -- recipes, routing


def test_recipes_are_listed_with_their_faults(project: programs.Project):
    """A broken recipe is listed as not valid, and the others stay usable."""
    project.write("recipes/broken.json", '{"recipe_id": "broken",')
    listed = {entry["recipe_id"]: entry for entry in programs.asked("recipes", "list", project=project)}

    assert listed["small"]["valid"] is True
    assert listed["small"]["layer"] == "project"
    assert listed["creative_draft_scene"]["layer"] == "bundled"
    assert listed["broken"]["valid"] is False
    assert "broken: not valid" in programs.control_room("recipes", "list", project=project).stdout
    assert run_small(project)["status"] == "done"


def test_recipe_is_shown_with_arguments_and_steps(project: programs.Project):
    """A recipe's detail contains the schema of its arguments and its graph."""
    shown = programs.asked("recipes", "show", "small", project=project)
    text = programs.control_room("recipes", "show", "small", project=project).stdout

    assert shown["args_schema"]["required"] == ["words"]
    assert {"nodes", "edges"} <= set(shown["graph"])
    assert re.search(r"^words .*required$", text, flags=re.MULTILINE)


def test_options_of_a_language(project: programs.Project):
    """A language's options reach it, and an unknown one is refused by name."""
    flow = project.data / "recipes" / "orchestrate" / "flow.yaml"
    flow.parent.mkdir(parents=True)
    flow.write_text('version: "1.1"\nsteps:\n  - {name: A, command: ["false"]}\n  - {name: B, command: ["true"]}\n')
    done = programs.control_room("run", "flow", "--exclusive", "--option", "on_error=continue", project=project)
    refused = programs.control_room("run", "flow", "--option", "speed:=9", project=project, code=2)

    assert "done" in done.stdout
    assert "options.speed" in refused.stderr
    assert "options_invalid" in refused.stderr


def test_an_argument_given_as_an_option_is_named(project: programs.Project):
    """The message contains the right notation of the argument, as text or JSON, and no run is created."""
    for given in ("words=two words", 'words:=["a"]'):
        refused = programs.control_room("run", "small", "--option", given, project=project, code=2)

        assert f"write --arg {shlex.quote(given)}" in refused.stderr
    assert programs.asked("runs", "list", project=project) == []


def test_a_file_is_validated_as_it_is_listed(project: programs.Project):
    """Validation by id and by file gives the same verdict, also for a broken workflow or one in the wrong folder."""
    workflow = 'version: "1.1"\nname: Some name\nsteps:\n  - {name: A, %s: ["true"]}\n'
    files = {
        "right": project.data / "recipes/orchestrate/right.yaml",
        "broken": project.data / "recipes/orchestrate/broken.yaml",
        "wrong": project.data / "recipes/amplifier/wrong.yaml",
        "both": project.data / "recipes/amplifier/both.yaml",
        "json": project.data / "recipes/orchestrate/json.yaml",
    }
    for name, file in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(workflow % ("comand" if name in ("broken", "both") else "command"))
    files["json"].write_text(json.dumps({"version": "1.1", "name": "Another name", "steps": 1}))
    found = programs.asked("recipes", "validate", *files, *files.values(), project=project, code=2)
    told = {verdict.pop("target"): verdict for verdict in found}

    assert [told[name] for name in files] == [told[str(file)] for file in files.values()]
    assert [told[name]["valid"] for name in files] == [True, False, False, False, False]
    codes = {name: [flaw["code"] for flaw in told[name]["flaws"]] for name in files}
    assert codes["wrong"] == ["misplaced"]
    assert codes["both"] == ["misplaced"]
    assert codes["broken"] == ["unknown_field", "missing_field"]


def test_the_language_of_a_file_is_found(project: programs.Project, tmp_path: Path):
    """The language of a file is found by its folder, ending and text."""
    names = ("agent_recipes/rebase.json", "amplifier/staged-review.yaml", "orchestrate/git_census.yaml")
    files = [programs.ROOT / "recipes" / name for name in (*names, "control_room/structural_canon.json")]
    moved = []
    for file in files:
        moved.append(tmp_path / f"moved-{file.name}")
        moved[-1].write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    # The backend of agent recipes is not installed everywhere.
    backend = {
        "default_backend": "here",
        "backends": {"here": {"type": "template", "command": ["sh"], "resume": ["sh"]}},
    }
    (project.path / ".control-room" / "agents.json").write_text(json.dumps(backend))
    found = programs.asked("recipes", "validate", *files, *moved, project=project)

    assert len(found) >= 6
    assert [verdict["target"] for verdict in found if not verdict["valid"]] == []


def test_recipes_are_validated_by_id_file_or_all(project: programs.Project, tmp_path: Path):
    """Every flaw of a file is listed with its path, and an invalid one ends the command with 2."""
    file = tmp_path / "own.json"
    file.write_text(json.dumps(programs.RECIPE | {"recipe_id": "own", "surprise": 1, "dod": [{"check": "odd"}]}))
    found = programs.asked("recipes", "validate", file, project=project, code=2)

    assert programs.asked("recipes", "validate", "small", project=project) == [
        {"target": "small", "valid": True, "flaws": [], "ready": True, "lacks": []}
    ]
    assert found[0]["valid"] is False
    assert len(found[0]["flaws"]) >= 2
    assert all(flaw["path"].startswith("$") for flaw in found[0]["flaws"])
    assert all(verdict["valid"] for verdict in programs.asked("recipes", "validate", project=project))


def test_task_is_routed(project: programs.Project):
    """The router returns recipe and reason, and exit code 2 if no recipe fits."""
    routed = programs.asked("route", "a small task for you", project=project)
    lost = programs.asked("route", "bake a cake", project=project, code=2)

    assert (routed["recipe_id"], routed["routable"]) == ("small", True)
    assert (lost["recipe_id"], lost["routable"]) == (None, False)
    assert lost["reason"]


# -- upkeep


def test_init_makes_a_project_and_can_be_repeated(tmp_path: Path):
    """`init` creates `.control-room/` with a .gitignore and folders for recipes and prompts, and keeps old files."""
    folder = tmp_path / "new"
    folder.mkdir()
    made = programs.asked("init", "--project", folder)
    (folder / ".control-room" / "recipes" / "mine.json").write_text("{}")
    first = programs.control_room("init", "--project", folder).stdout
    (folder / ".control-room" / "agents.json").write_text("{}")
    again = programs.control_room("init", "--project", folder).stdout

    assert "not there until you write it" in first
    assert "not there until" not in again
    assert "small local model" not in again
    assert made == {"data_directory": str(folder / ".control-room"), "example": []}
    assert (folder / ".control-room" / ".gitignore").exists()
    assert (folder / ".control-room" / "prompts" / "templates").is_dir()
    assert all((folder / ".control-room" / "recipes" / name).is_dir() for name in ("agent_recipes", "amplifier"))
    assert (folder / ".control-room" / "recipes" / "mine.json").read_text() == "{}"


def test_init_adds_an_example_that_runs(tmp_path: Path):
    """`init --example` adds a project that runs at once, and can be repeated, but refuses to replace changed files."""
    programs.control_room("init", "--example", "code", "--project", tmp_path)
    programs.control_room("init", "--example", "code", "--project", tmp_path)
    programs.control_room("run", "check_inventory", "--project", tmp_path)

    assert "pass" in (tmp_path / "reports" / "tests.txt").read_text()

    (tmp_path / "EXAMPLE.md").write_text("mine")
    (tmp_path / "inventory" / "stock.py").unlink()
    refused = programs.control_room("init", "--example", "code", "--project", tmp_path, code=5)

    assert "EXAMPLE.md" in refused.stderr
    assert not (tmp_path / "inventory" / "stock.py").exists()


def test_validate_names_a_backend_that_cannot_work(tmp_path: Path):
    """`recipes validate`, by id and by file, and `run --dry-run` end with 5 if a needed backend cannot work here."""
    backends = {"gone": {"type": "template", "command": ["no-such-agent-program"], "resume": ["no-such-agent-program"]}}
    programs.control_room("init", "--project", tmp_path)
    data = tmp_path / ".control-room"
    (data / "agents.json").write_text(json.dumps({"default_backend": "gone", "backends": backends}))
    copied = data / "recipes" / "agent_recipes" / "rebase.json"
    copied.write_text(resources.bundled("recipes", "agent_recipes", "rebase.json").read_text())

    for command in (("recipes", "validate", "rebase"), ("recipes", "validate", copied), ("run", "rebase", "--dry-run")):
        told = programs.control_room(*command, "--project", tmp_path, code=5)

        assert "no-such-agent-program" in told.stdout + told.stderr
    assert "no-such" in programs.control_room("recipes", "validate", "--project", tmp_path).stdout


def test_a_project_that_is_not_a_folder_ends_with_exit_code_5(tmp_path: Path):
    """A project folder that does not exist is a configuration error."""
    refused = programs.control_room("runs", "list", "--project", tmp_path / "absent", code=5)

    assert "--project" in refused.stderr


def test_config_check_distinguishes_errors_and_warnings(project: programs.Project):
    """Errors of the configuration end with 5; warnings alone do not."""
    project.write("recipes/broken.json", "{")
    warned = programs.asked("config", "check", project=project)
    given = {"CONTROL_ROOM_PORT": "many", "CONTROL_ROOM_PRJECT": "x"}
    refused = programs.asked("config", "check", project=project, code=5, **given)

    assert warned["errors"] == []
    assert any("broken.json" in warning["setting"] for warning in warned["warnings"])
    assert [error["setting"] for error in refused["errors"]] == ["CONTROL_ROOM_PORT"]
    assert [warning["setting"] for warning in refused["warnings"]] == ["CONTROL_ROOM_PRJECT"]
    assert "warning: " in programs.control_room("config", "check", project=project).stdout
    assert not (project.data / "runs").exists()


def test_config_check_reports_an_impossible_data_directory(tmp_path: Path):
    """The check reports a data directory that cannot be created, and creates none itself."""
    checked = ("config", "check", "--project", str(tmp_path))
    sound = programs.control_room(*checked, code=0)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".control-room").write_text("no folder", encoding="utf-8")
    told = programs.control_room(*checked, code=5)
    below = programs.control_room(*checked, code=5, CONTROL_ROOM_DATA_DIRECTORY=".control-room/x/y")

    assert "CONTROL_ROOM_DATA_DIRECTORY" not in sound.stdout
    for each in (told, below):
        assert f"CONTROL_ROOM_DATA_DIRECTORY: {tmp_path / '.control-room'} is not a folder" in each.stdout


def test_agents_are_checked(project: programs.Project):
    """Every agent is listed with its problem, the project's agents first."""
    (project.data / "replies.json").unlink()
    found = programs.asked("agents", "check", project=project, code=5)

    assert found[0]["id"] == "planner-test"
    assert "replies.json" in found[0]["problem"]
    assert "planner-test" in programs.control_room("agents", "check", project=project, code=None).stdout


def test_broken_agents_file_does_not_hide_runs(project: programs.Project):
    """With an unusable `agents.json` runs and recipes can be read, but no run can be started."""
    run_id = run_small(project)["run_id"]
    project.write("agents.json", '{"agents": [')

    assert [run["run_id"] for run in programs.asked("runs", "list", project=project)] == [run_id]
    programs.control_room("runs", "show", str(run_id), project=project)
    programs.control_room("recipes", "list", project=project)
    for refused in (["run", "small", "--arg", "words=x"], ["agents", "check"], ["config", "check"]):
        told = programs.control_room(*refused, project=project, code=5)
        assert "agents.json" in told.stderr + told.stdout


def test_index_is_rebuilt_from_the_folders(project: programs.Project):
    """Rebuilding a lost index finds every run again."""
    run_id = run_small(project)["run_id"]
    for file in project.data.glob("index.db*"):
        file.unlink()
    programs.asked("index", "rebuild", project=project)

    assert [run["run_id"] for run in programs.asked("runs", "list", project=project)] == [run_id]


@pytest.mark.slow
def test_openapi_document_is_printed_and_written(tmp_path: Path):
    """The OpenAPI document is valid JSON, on stdout or in a file."""
    printed = programs.control_room("openapi").stdout
    programs.control_room("openapi", "--output", tmp_path / "openapi.json")

    assert json.loads(printed)["openapi"].startswith("3.1")
    assert (tmp_path / "openapi.json").read_text() == printed


def test_an_unreadable_data_directory_is_reported(project: programs.Project):
    """A data directory that is a file is a configuration error, not a crash."""
    folder = project.path.parent / "odd"
    folder.mkdir()
    (folder / ".control-room").write_text("not a folder")
    refused = programs.control_room("run", "creative_draft_scene", "--project", folder, code=None)

    assert refused.returncode in (2, 5)
    assert refused.stderr.startswith("control-room: ")
    assert os.path.isfile(folder / ".control-room")


def test_recipes_are_validated_without_their_store(project: programs.Project) -> None:
    """If runs are in a database that no setting names, recipes can be shown and validated, and runs are refused."""
    project.write("store.json", {"identity": "control-room", "address": "postgresql://db.example/runs"})
    valid = programs.asked("recipes", "validate", "small", project=project)
    listed = programs.asked("recipes", "show", "small", project=project)
    refused = programs.control_room("runs", "list", project=project, code=5)

    assert [verdict["valid"] for verdict in valid] == [True]
    assert listed["recipe_id"] == "small"
    assert "postgresql://db.example/runs" in refused.stderr
    assert "CONTROL_ROOM_STORE_URL" in refused.stderr
