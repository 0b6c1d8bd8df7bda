"""Real faults: the system's own short write, full disk and failed sync."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app import errors
from tests.architecture import sources
from tests.conformance import store_harness
from tests.unit.storage import refusals, writer_processes

ALL = [f"s{number}" for number in range(refusals.STEPS)]
EACH_FAULT = pytest.mark.parametrize(
    ("call", "error"),
    [
        ("fdatasync", "EIO"),
        ("write", "ENOSPC"),
        pytest.param("fdatasync", "ENOSPC", marks=pytest.mark.slow),
        pytest.param("write", "EIO", marks=pytest.mark.slow),
    ],
)
"""System call that fails, and its error."""


def refusal_output(*command: str) -> dict[str, Any]:
    """Run the refusing process and return its output."""
    done = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_write_that_the_system_cuts_short_is_repeated(tmp_path: Path) -> None:
    """If a file may not grow any further, the half-written line is not counted and is appended after healing."""
    found = refusal_output(sys.executable, "-m", "tests.unit.storage.refusals", str(tmp_path / "d"), "limit")

    assert len(found["faults"]) == 1
    assert found["faults"][0]["file"].endswith("steps.jsonl")
    assert found["free"] == [False, True]
    assert found["ok"]
    assert found["steps"] == ALL


def traced(tmp_path: Path, file: str, call: str, error: str, how: str) -> dict[str, Any]:
    """Let the seventh call of its kind on a file fail, and return the process's output."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (apt-get install strace)")
    place = tmp_path / "d"
    program = (sys.executable, "-m", "tests.unit.storage.refusals", str(place), how)
    tracer = ("strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-P", str(place.resolve() / file))
    probe = subprocess.run([*tracer, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"strace may not trace here: {probe.stderr.strip()}")
    return refusal_output(*tracer, "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when=7", *program)


@EACH_FAULT
def test_a_call_that_the_system_fails_is_repeated(tmp_path: Path, call: str, error: str) -> None:
    """A failed sync or write of a journal loses no line and duplicates none."""
    found = traced(tmp_path, f"runs/{store_harness.RUN}/steps.jsonl", call, error, "plain")

    assert [fault["errno"] for fault in found["faults"]] == [error]
    assert found["free"] == [False, True]
    assert found["ok"]
    assert found["steps"] == ALL


@EACH_FAULT
def test_a_commit_log_that_fails_is_done_without(tmp_path: Path, call: str, error: str) -> None:
    """While the log cannot be written or synced, each file is synced alone, and no step is affected."""
    found = traced(tmp_path, "commits/1.log", call, error, "shared")

    assert found["faults"] == []
    assert found["free"] == [True]
    assert found["ok"]
    assert found["steps"] == ALL


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of one megabyte, if that is allowed."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_run_on_a_full_disk_waits_and_continues(small_disk: Path) -> None:
    """On a full disk a step waits, new runs are refused, and reads continue; with room again no line is missing."""
    ballast = small_disk / "ballast"

    def fill() -> None:
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    found = await refusals.refused(small_disk / "d", fill, ballast.unlink)

    assert [fault["errno"] for fault in found["faults"]] == ["ENOSPC"]
    assert found["free"] == [False, True]
    assert found["ok"]
    assert found["steps"] == ALL


async def test_a_full_disk_takes_no_new_run(small_disk: Path) -> None:
    """Creation on a full disk is refused and leaves no file; with room again it succeeds."""
    store = writer_processes.store_in(small_disk / "d")
    await store.start()
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(4096))
    with pytest.raises(errors.WriteFailed):
        await store.create(store_harness.start())
    refused = await store.write_fault() is None
    left = os.listdir(small_disk / "d" / "runs")
    ballast.unlink()
    await store.create(store_harness.start())
    loaded = await store.read(store_harness.RUN)
    await store.close()

    assert not refused
    assert left == [".trash"]
    assert loaded.start.run_id == store_harness.RUN


async def test_a_process_without_descriptors_reads_nothing_and_loses_nothing(tmp_path: Path) -> None:
    """While no descriptor is free, a run is unreadable; with the next free one it is complete."""
    store = writer_processes.store_in(tmp_path / "d")
    await store.start(serve=False)
    await store.create(store_harness.start())
    await (await store.open(store_harness.RUN)).close()
    before = await store.read(store_harness.RUN)
    # Kept lines of an unchanged run need no descriptor.
    os.utime(tmp_path / "d" / "runs" / store_harness.RUN / "steps.jsonl")
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, usual[1]))
    try:
        with pytest.raises(errors.Unreadable) as caught:
            await store.read(store_harness.RUN)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)

    assert (caught.value.detail["file"], caught.value.detail["errno"]) == ("start.json", "EMFILE")
    assert await store.read(store_harness.RUN) == before
    assert store.unreadable(store_harness.RUN) is None

    await store.close()
