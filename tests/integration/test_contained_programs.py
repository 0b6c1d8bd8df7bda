"""The real agent programs with containment: each works in each mode, and a cancel ends all its processes."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app import clock
from app.processes import commands, namespace_init, supervisor
from tests.agent_programs import installed, loopback, pointed
from tests.agent_programs.fake_model.replies import Reply, Shell
from tests.agent_programs.fake_model.server import FakeModel
from tests.agent_programs.test_pointed import CALLS, TURN_SECONDS
from tests.unit.processes import modes, process_families

pytestmark = pytest.mark.programs


@pytest.fixture(params=sorted(CALLS))
def program(request: pytest.FixtureRequest) -> installed.Installed:
    found = installed.find(request.param)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with loopback.alone(), FakeModel() as served:
        yield served


@pytest.fixture(params=modes.EACH)
async def running(
    request: pytest.FixtureRequest, model: FakeModel, tmp_path: Path
) -> AsyncIterator[supervisor.Supervisor]:
    # After the model, so that the launcher is in its network.
    modes.need(request.param)
    started = supervisor.Supervisor(tmp_path / "processes", clock.RandomIds(), os.environ, containment=request.param)
    yield started
    await started.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def turn(program: installed.Installed, model: FakeModel, workspace: Path) -> commands.Request:
    """Return the request for one turn."""
    one = pointed.point(program, workspace.parent / "home", model.address)
    return commands.Request(
        argv=(*one.command, *CALLS[program.name](one.model, str(uuid.uuid4()))),
        run_id="run-1",
        cwd=workspace,
        env=one.environ,
        inherits=False,
        timeout_seconds=TURN_SECONDS,
        contained=True,
    )


def inhabitants(workspace: Path) -> set[str]:
    """Return the processes whose working directory is a folder."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd") == str(workspace):
                found.add(name)
        except OSError:
            continue
    return found


async def test_a_program_acts(
    running: supervisor.Supervisor, program: installed.Installed, model: FakeModel, workspace: Path
) -> None:
    """A program calls the model, runs the requested command, prints the last reply and exits with 0."""
    model.say(Reply(text="I act.", tool=Shell(command="echo made > made.txt")), Reply(text="It is DONE-HERE."))
    ended = await running.run(turn(program, model, workspace))

    assert (ended.exit_code, ended.cause) == (0, ""), (ended.stdout.content[-2000:], ended.stderr.content[-2000:])
    assert b"DONE-HERE" in ended.stdout.content
    assert (workspace / "made.txt").read_text() == "made\n"
    assert ended.containment == running._containment
    assert inhabitants(workspace) == set()


async def test_a_cancel_leaves_nothing(
    running: supervisor.Supervisor, program: installed.Installed, model: FakeModel, workspace: Path
) -> None:
    """A cancel during a tool ends the program, its tool, and the processes that the tool put into the background."""
    loop = "while :; do echo x >> ticks; sleep 0.02; done"
    model.say(Reply(text="I act.", tool=Shell(command=f"setsid sh -c '{loop}' & {loop}")))
    work = asyncio.ensure_future(running.run(turn(program, model, workspace)))
    ticks = workspace / "ticks"
    await process_families.until(lambda: work.done() or ticks.exists(), TURN_SECONDS)
    alive = inhabitants(workspace)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    size = ticks.stat().st_size

    assert alive
    assert inhabitants(workspace) == set()
    assert size == ticks.stat().st_size


def test_every_mode_is_tried() -> None:
    """The tests cover all modes of containment."""
    assert {*modes.ALL, namespace_init.AUTO} == {*namespace_init.WANTED}
