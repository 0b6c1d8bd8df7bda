"""Commands of runs in the real service: killed, cancelled, stopped, and taken up again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.processes import command_register, process_tree
from tests.acceptance import commanding, programs
from tests.unit.processes import process_families

EVERYBODY = ("parent", *process_families.ALL)


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    return programs.make_project(tmp_path / "project")


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


def brood(traces: Path, *kinds: str, **given: Any) -> dict[str, Any]:
    """Return a command whose processes try to outlive it."""
    return {"argv": list(process_families.argv(traces, "stubborn", *(kinds or process_families.ALL)))} | given


def once(traces: Path, *, afterwards: str = "exit 0") -> dict[str, Any]:
    """Return a command that stays the first time and ends the second time."""
    script = f'if test -e {traces}/parent; then {afterwards}; fi; exec "$@"'
    return {"argv": ["/bin/sh", "-c", script, "sh", *process_families.argv(traces, "stubborn", *process_families.ALL)]}


def launcher(project: programs.Project) -> int:
    """Return the process id of the launcher of the project's commands."""
    (path,) = command_register.list_registers(str(project.data / "processes"))
    owner, _ = command_register.read(path)
    assert owner is not None
    return owner.launcher_pid


def born(traces: Path) -> dict[str, int]:
    """Wait until a process family is alive."""
    return asyncio.run(process_families.born(traces, *EVERYBODY))


def gone(pids: dict[str, int]) -> bool:
    """Wait until processes have ended."""
    asyncio.run(process_families.until(lambda: not process_families.living(pids)))
    return True


def journal(project: programs.Project, run_id: str) -> list[dict[str, Any]]:
    """Return the lines of a run's journal."""
    lines = (project.data / "runs" / run_id / "steps.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_run_of_commands(project: programs.Project, tmp_path: Path) -> None:
    """Commands work in the project, their results are steps, and their output is in masked logs."""
    (project.path / "work").mkdir()
    write = {"argv": ["/bin/sh", "-c", "echo $TOKEN > made; echo $TOKEN"], "secrets": ["TOKEN"], "cwd": "work"}
    commanding.write(project, "make", {"write": write, "read": {"argv": ["cat", "work/made"], "output_file": "copy"}})
    with commanding.service(project, TOKEN="sk-of-the-service") as service:
        run_id = service.start_run(recipe_id="make", args={})
        run = service.wait(run_id)
        with service.http() as http:
            log = http.get(f"/api/runs/{run_id}/logs/write.1.stdout.txt").text
        code = service.stop()

    assert (run["status"], programs.lines_of(run)) == ("done", [("write", "done"), ("read", "done")])
    assert (project.path / "copy").read_text() == "sk-of-the-service\n"
    assert log == "***\n"
    assert code == 0
    assert os.listdir(project.data / "processes") == [".gitignore"]


def test_a_killed_service_leaves_no_process(project: programs.Project, traces: Path) -> None:
    """After kill -9 of the service no process of its commands is left, even one in its own session or forked twice."""
    commanding.write(project, "stay", {"stay": brood(traces)})
    with commanding.service(project) as service:
        service.start_run(recipe_id="stay", args={})
        pids = born(traces) | {"launcher": launcher(project)}
        service.signal(signal.SIGKILL)
        service.ended()

        assert gone(pids)


@pytest.mark.parametrize("launcher_too", [False, True])
def test_a_killed_run_is_taken_up_by_a_clean_service(
    project: programs.Project, traces: Path, launcher_too: bool
) -> None:
    """The processes of the first attempt are dead before the second begins, even if the launcher was killed as well."""
    # A zombie counts as dead, because the process that reaps orphans here may be slow.
    living = "grep -q '^State:.[^ZX]' /proc/$(cat $0/$kind)/status 2>/dev/null"
    check = f"for kind in {' '.join(EVERYBODY)}; do {living} && exit 9; done; exit 0"
    command = once(traces, afterwards=f'exec /bin/sh -c "$CHECK" "{traces}"') | {"env": {"CHECK": check}}
    commanding.write(project, "once", {"once": command})
    with commanding.service(project) as service:
        run_id = service.start_run(recipe_id="once", args={})
        pids = born(traces)
        if launcher_too:
            service.signal(signal.SIGSTOP)
            os.kill(launcher(project), signal.SIGKILL)
        service.signal(signal.SIGKILL)
        service.ended()
    with commanding.service(project) as service:
        run = service.wait(run_id)

    assert (run["status"], process_families.living(pids)) == ("done", set())
    assert [(line["attempt"], line["output"]["exit_code"]) for line in journal(project, run_id)] == [(2, 0)]


def test_a_cancelled_run_has_no_process(project: programs.Project, traces: Path) -> None:
    """When a run has ended as cancelled, its commands are gone."""
    commanding.write(project, "stay", {"stay": brood(traces)})
    with commanding.service(project) as service:
        run_id = service.start_run(recipe_id="stay", args={})
        pids = born(traces)
        with service.http() as http:
            answer = http.post(f"/api/runs/{run_id}/cancel")
        run = service.wait(run_id)

        assert answer.status_code == 200
        assert (run["status"], process_families.living(pids)) == ("cancelled", set())


def test_a_stopped_service_leaves_no_process(project: programs.Project, traces: Path) -> None:
    """After the grace period of a stop a command is ended without a record, and runs again at the next start."""
    commanding.write(project, "once", {"once": once(traces)})
    with commanding.service(project) as service:
        run_id = service.start_run(recipe_id="once", args={})
        pids = born(traces) | {"launcher": launcher(project)}
        service.hurry()
        service.ended()
        left, lines = process_families.living(pids), journal(project, run_id)
    with commanding.service(project) as service:
        run = service.wait(run_id)

    assert (left, lines) == (set(), [])
    assert run["status"] == "done"


@pytest.mark.parametrize(
    ("on_interrupted", "holds"),
    [
        ("rerun", lambda run: run["status"] == "done"),
        ("fail", lambda run: run["status"] == "failed" and run["steps"][0]["error"]["code"] == "interrupted"),
        ("ask", lambda run: run["status"] == "paused" and run["error"]["code"] == "step_interrupted"),
    ],
)
def test_a_killed_launcher_is_an_interruption(
    project: programs.Project, traces: Path, on_interrupted: str, holds: Callable[[dict[str, Any]], bool]
) -> None:
    """The service continues with a new launcher, and the interrupted command is handled as its operation requests."""
    commanding.write(project, "once", {"once": once(traces) | {"on_interrupted": on_interrupted}})
    commanding.write(project, "next", {"next": {"argv": ["/bin/true"]}})
    with commanding.service(project) as service:
        run_id = service.start_run(recipe_id="once", args={})
        pids = born(traces)
        first = launcher(project)
        os.kill(first, signal.SIGKILL)
        run = service.wait_until(run_id, holds)
        left = process_families.living(pids)
        other = service.wait(service.start_run(recipe_id="next", args={}))

        assert run["run_id"] == run_id
        assert (left, other["status"]) == (set(), "done")
        assert launcher(project) != first


def test_many_runs_of_commands_leave_nothing(project: programs.Project) -> None:
    """After forty runs of commands, half of them cancelled, no process, register entry or descriptor is left."""
    commanding.write(project, "quick", {"quick": {"argv": ["/bin/true"]}})
    commanding.write(project, "slow", {"slow": {"argv": ["/bin/sleep", "60"]}})
    with commanding.service(project) as service:
        service.wait(service.start_run(recipe_id="quick", args={}))
        pid = launcher(project)
        before = len(os.listdir(f"/proc/{pid}/fd"))
        ids = [service.start_run(recipe_id=name, args={}) for name in ("quick", "slow") * 20]
        with service.http() as http:
            for slow in ids[1::2]:
                assert http.post(f"/api/runs/{slow}/cancel").status_code == 200
        ended = [service.wait(run_id)["status"] for run_id in ids]

        assert ended == ["done", "cancelled"] * 20
        assert process_tree.descendants(process_tree.table(), [pid]) == {pid}
        assert len(os.listdir(f"/proc/{pid}/fd")) == before
        (path,) = command_register.list_registers(str(project.data / "processes"))
        assert command_register.read(path)[1] == []
