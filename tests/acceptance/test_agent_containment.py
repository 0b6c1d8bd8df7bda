"""Agents of the real service that try to outlive it, with every containment and every kill.

Afterwards no process of the agent writes into the workspace, and the run continues.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from app.processes import command_register, containment, namespace_init
from tests.acceptance import programs
from tests.unit.processes import modes, process_families

FAMILY = ("parent", *process_families.ALL)


@pytest.fixture(params=[namespace_init.GUARD, namespace_init.AUTO])
def mode(request: pytest.FixtureRequest) -> str:
    wanted: str = request.param
    modes.need(wanted)
    return wanted


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project whose writer stays with its whole process family the first time, and writes the second time."""
    made = programs.make_project(tmp_path / "project")
    traces = made.path / "Story" / "traces"
    traces.mkdir()
    script = f'if test -e {traces}/parent; then echo Kael walked.; else exec "$@"; fi'
    command = ["/bin/sh", "-c", script, "sh", *process_families.argv(traces, "stubborn", *process_families.ALL)]
    agents: Any = programs.AGENTS["agents"]
    backends: Any = programs.AGENTS["backends"]
    hostile = {"type": "template", "command": command, "tools_off": []}
    people = [agents[0], agents[1] | {"backend": "hostile"}]
    made.write("agents.json", {"agents": people, "backends": backends | {"hostile": hostile}})
    return made


@pytest.fixture
def traces(project: programs.Project) -> Path:
    return project.path / "Story" / "traces"


def service(project: programs.Project, mode: str) -> Any:
    """Serve the project with its agents contained in that mode."""
    return programs.service(project, CONTROL_ROOM_CONTAINMENT=mode)


def born(traces: Path) -> dict[str, int]:
    """Wait until the whole process family is alive."""
    return asyncio.run(process_families.born(traces, *FAMILY))


def silent(traces: Path) -> bool:
    """Wait until no process of the family is alive, and return whether no further write happens."""
    asyncio.run(process_families.until(lambda: not process_families.running(traces)))
    written = process_families.written(traces)
    asyncio.run(asyncio.sleep(0.05))
    return written == process_families.written(traces)


def standing(project: programs.Project) -> tuple[int, int]:
    """Return the process ids of the launcher and of the agent's wrapper."""
    (path,) = command_register.list_registers(str(project.data / "processes"))
    owner, entries = command_register.read(path)
    assert owner is not None
    return owner.launcher_pid, entries[0].pid


def test_a_killed_service(project: programs.Project, traces: Path, mode: str) -> None:
    """After kill -9 of the service its agent is gone, and the next service finishes the run."""
    with service(project, mode) as served:
        run_id = served.start_run()
        alive = born(traces)
        served.signal(signal.SIGKILL)
        served.ended()
        stopped = silent(traces)
    with service(project, mode) as served:
        run = served.wait(run_id)

    assert ({*alive}, stopped) == ({*FAMILY}, True)
    assert (run["status"], process_families.running(traces)) == ("done", {})


def test_a_service_that_is_killed_with_its_launcher(project: programs.Project, traces: Path, mode: str) -> None:
    """A namespace ends by itself; agents that are only guarded end before the next service continues a run."""
    with service(project, mode) as served:
        run_id = served.start_run()
        born(traces)
        launcher, _ = standing(project)
        served.signal(signal.SIGSTOP)
        os.kill(launcher, signal.SIGKILL)
        served.signal(signal.SIGKILL)
        served.ended()
        if mode == namespace_init.GUARD:
            left = {*process_families.running(traces)}
        else:
            assert silent(traces)
            left = set()
    with service(project, mode) as served:
        run = served.wait(run_id)

    assert left == ({*FAMILY} if mode == namespace_init.GUARD else set())
    assert (run["status"], process_families.running(traces), silent(traces)) == ("done", {}, True)


def test_a_killed_launcher(project: programs.Project, traces: Path, mode: str) -> None:
    """After kill -9 of the launcher the agent is gone, and the same service starts its step again."""
    with service(project, mode) as served:
        run_id = served.start_run()
        born(traces)
        launcher, _ = standing(project)
        os.kill(launcher, signal.SIGKILL)
        stopped = silent(traces)
        run = served.wait(run_id)

        assert stopped
        assert (run["status"], process_families.running(traces)) == ("done", {}), run


def test_a_killed_wrapper(project: programs.Project, traces: Path, mode: str) -> None:
    """After kill -9 of an agent's wrapper no process of the agent is left, and its step fails as `agent_signalled`."""
    with service(project, mode) as served:
        run_id = served.start_run()
        born(traces)
        _, wrapper = standing(project)
        os.kill(wrapper, signal.SIGKILL)
        stopped = silent(traces)
        run = served.wait(run_id)

        assert stopped
        assert [step["error"]["code"] for step in run["steps"] if step.get("error")] == ["agent_signalled"]


def test_a_cancelled_run(project: programs.Project, traces: Path, mode: str) -> None:
    """When a run has ended as cancelled, its agent is gone."""
    with service(project, mode) as served:
        run_id = served.start_run()
        born(traces)
        with served.http() as http:
            answer = http.post(f"/api/runs/{run_id}/cancel")
        run = served.wait(run_id)

        assert answer.status_code == 200
        assert (run["status"], process_families.running(traces), silent(traces)) == ("cancelled", {}, True)


def test_a_stopped_service(project: programs.Project, traces: Path, mode: str) -> None:
    """A stopped service leaves no process of an agent, and the next service continues the run."""
    with service(project, mode) as served:
        run_id = served.start_run()
        born(traces)
        served.hurry()
        served.ended()
        left = process_families.running(traces)
    with service(project, mode) as served:
        run = served.wait(run_id)

    assert (left, run["status"]) == ({}, "done")


@pytest.mark.parametrize(("wanted", "code"), [("auto", 0), ("namespace", 1), ("guard", 0), ("cage", 1)])
def test_the_check_reports_missing_namespaces(
    project: programs.Project, monkeypatch: pytest.MonkeyPatch, wanted: str, code: int
) -> None:
    """Without namespaces the check of the configuration reports that, and fails if the setting requires them."""
    monkeypatch.setattr(containment, "_PROGRAM", "import sys; sys.stdout.write('guard Operation not permitted')")
    told = programs.control_room("config", "check", project=project, code=None, CONTROL_ROOM_CONTAINMENT=wanted)

    assert (told.returncode != 0) == bool(code), told
    assert ("Operation not permitted" in told.stdout + told.stderr) == (wanted in ("auto", "namespace"))
