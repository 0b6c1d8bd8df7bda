"""Processes that a killed service leaves: its launcher ends them, and if that was killed too, the next service does."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app import clock
from app.processes import (
    command_register,
    commands,
    launcher_client,
    namespace_init,
    process_markers,
    process_tree,
    supervisor,
    sweeping,
)
from tests.unit.processes import modes, process_families

ROOT = Path(__file__).resolve().parents[3]
MARK = process_markers.to_text(process_markers.marker(0xABC, 1))


@pytest.fixture(params=modes.EACH)
def mode(request: pytest.FixtureRequest) -> str:
    wanted: str = request.param
    modes.need(wanted)
    return wanted


@dataclass
class Owner:
    """A process with a supervisor, and the family that it has started."""

    process: subprocess.Popen[bytes]
    launcher: int
    family: dict[str, int]

    def kill(self) -> None:
        """Kill the process with the supervisor."""
        self.process.kill()
        self.process.wait()


def started(folder: Path, mode: str, *argv: str) -> subprocess.Popen[bytes]:
    """Start a process that runs a command."""
    words = [sys.executable, "-m", "tests.unit.processes.owner", str(folder), mode, *argv]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE)


@asynccontextmanager
async def owner(folder: Path, mode: str, *kinds: str) -> AsyncIterator[Owner]:
    """Start a process that runs a family of these kinds."""
    traces = folder / f"traces-{len(os.listdir(folder))}"
    traces.mkdir()
    process = started(folder / "processes", mode, *process_families.argv(traces, *kinds))
    try:
        assert process.stdout is not None
        launcher = int(await asyncio.to_thread(process.stdout.readline))
        named = [kind for kind in ("parent", *kinds) if kind not in ("stubborn", "leave")]
        yield Owner(process, launcher, await process_families.born(traces, *named))
    finally:
        process.kill()
        process.communicate()


async def test_no_process_survives_a_killed_service(tmp_path: Path, mode: str) -> None:
    """After kill -9 of the service its commands are gone, whatever they do to survive; so are launcher and register."""
    async with owner(tmp_path, mode, "stubborn", *process_families.ALL) as owned:
        owned.kill()
        await process_families.until(lambda: not process_families.living(owned.family | {"launcher": owned.launcher}))

    assert command_register.list_registers(str(tmp_path / "processes")) == []


async def test_a_sweep_waits_for_a_launcher_that_is_alone(tmp_path: Path, mode: str) -> None:
    """A service that starts right after a kill waits until the old one's launcher has ended every process."""
    async with owner(tmp_path, mode, "stubborn", *process_families.ALL) as owned:
        owned.kill()
        await asyncio.to_thread(sweeping.sweep, tmp_path / "processes")

        assert process_families.living(owned.family | {"launcher": owned.launcher}) == set()


async def test_a_sweep_ends_processes_of_a_killed_launcher(tmp_path: Path) -> None:
    """After kill -9 of service and launcher, processes under the guard run until a sweep ends them."""
    async with owner(tmp_path, namespace_init.GUARD, "stubborn", *process_families.ALL) as owned:
        os.kill(owned.process.pid, signal.SIGSTOP)
        os.kill(owned.launcher, signal.SIGKILL)
        owned.kill()
        before = process_families.living(owned.family)
        (swept,) = await asyncio.to_thread(sweeping.sweep, tmp_path / "processes")

        assert before == {"parent", *process_families.ALL}
        assert process_families.living(owned.family) == set()
        assert (swept.run_ids, swept.killed, swept.survivors) == (("owned",), 4, 0)
        assert command_register.list_registers(str(tmp_path / "processes")) == []


@pytest.mark.parametrize("namespaced", modes.NAMESPACES)
async def test_a_namespace_needs_no_sweep(tmp_path: Path, namespaced: str) -> None:
    """After kill -9 of service and launcher at once, no process in a namespace continues, even without a sweep."""
    modes.need(namespaced)
    async with owner(tmp_path, namespaced, "stubborn", *process_families.ALL, "hidden") as owned:
        os.kill(owned.process.pid, signal.SIGSTOP)
        os.kill(owned.launcher, signal.SIGKILL)
        owned.kill()
        await process_families.until(lambda: not process_families.living(owned.family))
        (left,) = command_register.list_registers(str(tmp_path / "processes"))
        entries, series = command_register.read(left)[1], command_register.series_of(left)
        # The guard of the family ends a moment after the family.
        await process_families.until(lambda: not sweeping._remaining(series, entries))
        (swept,) = await asyncio.to_thread(sweeping.sweep, tmp_path / "processes")

        assert (swept.run_ids, swept.killed, swept.survivors) == (("owned",), 0, 0)
        assert command_register.list_registers(str(tmp_path / "processes")) == []


@pytest.mark.parametrize("namespaced", modes.NAMESPACES)
async def test_commands_below_an_agent_are_kept_together_too(tmp_path: Path, namespaced: str) -> None:
    """A supervisor inside an agent's namespace has a launcher there, and its commands end with the namespace."""
    modes.need(namespaced)
    (tmp_path / "inner").mkdir()
    below = process_families.argv(tmp_path / "inner", "stubborn", *process_families.ALL)
    above = [sys.executable, "-m", "tests.unit.processes.owner", str(tmp_path / "processes"), namespaced, *below]
    process = started(tmp_path / "processes", namespaced, "/bin/sh", "-c", 'cd "$0" && exec "$@"', str(ROOT), *above)
    try:
        assert process.stdout is not None
        launcher = int(await asyncio.to_thread(process.stdout.readline))
        family = await process_families.born(tmp_path / "inner", "parent", *process_families.ALL)
        await asyncio.to_thread(sweeping.sweep, tmp_path / "processes")
        alive = process_families.running(tmp_path / "inner")
        registers = command_register.list_registers(str(tmp_path / "processes"))
        os.kill(launcher, signal.SIGKILL)
        await process_families.until(lambda: not process_families.living(family))
    finally:
        process.kill()
        process.communicate()

    def is_swept() -> bool:
        # The inner register is held until the last process there is gone; it is killed with its namespace.
        sweeping.sweep(tmp_path / "processes")
        return command_register.list_registers(str(tmp_path / "processes")) == []

    assert (alive, len(registers)) == (family, 2)
    await process_families.until(is_swept)


@pytest.mark.parametrize("namespaced", modes.NAMESPACES)
async def test_a_sweep_in_a_namespace_ignores_its_launcher(tmp_path: Path, namespaced: str) -> None:
    """A sweep inside an agent's namespace cannot see its own launcher, and leaves it alone without a pause."""
    modes.need(namespaced)
    script = (
        "import pathlib, sys, time; from app.processes import sweeping\n"
        "began = time.monotonic(); swept = sweeping.sweep(pathlib.Path(sys.argv[1]))\n"
        "print(len(swept), time.monotonic() - began < sweeping._KILL_SECONDS)"
    )
    running = supervisor.Supervisor(tmp_path / "processes", clock.RandomIds(), os.environ, containment=namespaced)
    argv = (sys.executable, "-c", script, str(tmp_path / "processes"))
    told = await running.run(commands.Request(argv=argv, run_id="run-1", cwd=ROOT, contained=True))
    again = await running.run(commands.Request(argv=("/bin/true",), run_id="run-1", cwd=ROOT, contained=True))
    await running.close()

    assert (told.stdout.content, again.exit_code) == (b"0 True\n", 0)


def test_registers_of_an_unseen_namespace_are_kept(tmp_path: Path) -> None:
    """A sweep inside a namespace keeps an outer register, whose processes it cannot see; one outside removes it."""
    path = tmp_path / "00000abc"
    path.write_text(f"{process_tree.boot_id()} 1 1 2 1 5".ljust(127) + "\n")
    script = "import pathlib, sys; from app.processes import sweeping; sweeping.sweep(pathlib.Path(sys.argv[1]))"
    words = [sys.executable, "-c", script, str(tmp_path)]
    found = []
    for environ in ({process_markers.VARIABLE: process_markers.to_text(process_markers.marker(77, 5))}, {}):
        subprocess.run(words, cwd=ROOT, env=environ, check=True)
        found.append(path.exists())

    assert found == [True, False]


async def test_a_sweep_ends_a_launcher_that_hangs(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that should end and does not is killed, and its commands after it."""
    monkeypatch.setattr(sweeping, "_KILL_SECONDS", 0.5)
    async with owner(tmp_path, mode, *process_families.ALL) as owned:
        os.kill(owned.launcher, signal.SIGSTOP)
        owned.kill()
        await asyncio.to_thread(sweeping.sweep, tmp_path / "processes")

        assert process_families.living(owned.family | {"launcher": owned.launcher}) == set()


async def test_commands_of_a_living_process_are_let_alone(tmp_path: Path, mode: str) -> None:
    """A sweep does not touch the commands of another living process of the same project."""
    async with (
        owner(tmp_path, mode, *process_families.ALL) as living,
        owner(tmp_path, mode, *process_families.ALL) as killed,
    ):
        os.kill(killed.process.pid, signal.SIGSTOP)
        os.kill(killed.launcher, signal.SIGKILL)
        killed.kill()
        await asyncio.to_thread(sweeping.sweep, tmp_path / "processes")

        assert process_families.living(killed.family) == set()
        assert process_families.living(living.family) == {"parent", *process_families.ALL}


async def test_after_a_reboot_nothing_is_looked_for(tmp_path: Path) -> None:
    """A register from before a reboot is removed, and processes that now have its ids are spared."""
    folder = tmp_path / "processes"
    folder.mkdir()
    sleeping = process_families.sleeper(MARK)
    lines = ["an-earlier-boot 1 1 2 1", f"1 run-1 {sleeping.pid} {process_tree.started(sleeping.pid)}"]
    (folder / "00000abc").write_text("".join(line.ljust(127) + "\n" for line in lines))
    swept = await asyncio.to_thread(sweeping.sweep, folder)
    alive = sleeping.poll() is None
    sleeping.kill()
    sleeping.wait()

    assert alive
    assert [found.killed for found in swept] == [0]
    assert os.listdir(folder) == []


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"some text\n", b"boot 1 2 3\nx y\n", b" " * 4096])
async def test_an_unreadable_register_is_removed(tmp_path: Path, content: bytes) -> None:
    """A torn or foreign register is removed; the mark is in the file's name."""
    sleeping = process_families.sleeper(MARK)
    (tmp_path / "00000abc").write_bytes(content)
    (tmp_path / "notes.txt").write_text("no register")
    swept = await asyncio.to_thread(sweeping.sweep, tmp_path)

    assert sleeping.wait() == -signal.SIGKILL
    assert [found.killed for found in swept] == [1]
    assert os.listdir(tmp_path) == ["notes.txt"]


async def test_a_register_that_cannot_be_read_now_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A register that cannot be read now is kept for the next sweep, since its processes may be alive."""
    sleeping = process_families.sleeper(MARK)
    (tmp_path / "00000abc").write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr(command_register, "open", _fails, raising=False)
        assert sweeping.sweep(tmp_path) == []
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", _fails)
        assert sweeping.sweep(tmp_path) == []

    assert os.listdir(tmp_path) == ["00000abc"]
    assert sleeping.poll() is None
    assert len(caplog.records) == 2

    await asyncio.to_thread(sweeping.sweep, tmp_path)

    assert sleeping.wait() == -signal.SIGKILL
    assert os.listdir(tmp_path) == []


def _fails(path: str, *_: Any, **__: Any) -> Any:
    raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def test_where_nothing_ran_nothing_is_swept(tmp_path: Path) -> None:
    """A folder that was never made is like an empty one."""
    assert sweeping.sweep(tmp_path / "none") == []


def test_a_launcher_is_lean() -> None:
    """The launcher imports its neighbours and the standard library, but no slow module."""
    script = "import sys; sys.path.append(sys.argv[1]); from app.processes import launcher; print(*sorted(sys.modules))"
    told = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(ROOT)], capture_output=True, check=True, text=True
    )
    modules = set(told.stdout.split())
    neighbours = (
        "command_register",
        "environments",
        "jobs",
        "launcher",
        "launcher_protocol",
        "namespace_init",
        "namespaces",
        "output_files",
        "process_markers",
        "process_tree",
        "spawning",
    )

    assert {name for name in modules if name.startswith("app")} == {
        "app",
        "app.processes",
        *(f"app.processes.{name}" for name in neighbours),
    }
    # From Python 3.14 on ctypes itself imports threading.
    heavy = {"asyncio", "dataclasses", "inspect", "json", "logging", "pathlib", "subprocess"}
    assert not modules & (heavy if sys.version_info >= (3, 14) else heavy | {"threading"})
    assert "launcher.main" in launcher_client._PROGRAM
