"""Watching a workflow's file, on a clock that the test advances."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from app import clock, errors
from app.cli.orchestrate import watching


def watcher(path: Path, time: clock.Clock, run: watching.Run = lambda: 0) -> watching.Watcher:
    """Return a watcher of a file."""
    return watching.Watcher(path, path.name, run, time)


async def looks(time: clock.FakeClock, task: asyncio.Task[None]) -> bool:
    """Let the watcher check the file a few times; return whether it noticed a change."""
    for _ in range(5):
        for _ in range(5):
            await asyncio.sleep(0)
        time.advance(watching.POLL_SECONDS)
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


async def test_only_another_content_is_a_change(tmp_path: Path):
    """Only different content is a change; touching or removing the file is not."""
    path, time = tmp_path / "flow.yaml", clock.FakeClock()
    path.write_text("one")
    task = asyncio.create_task(watcher(path, time).changed(b"one"))
    seen = [await looks(time, task)]
    os.utime(path, ns=(1, 1))
    seen.append(await looks(time, task))
    path.unlink()
    seen.append(await looks(time, task))
    fresh = tmp_path / "fresh"
    fresh.write_text("two")
    fresh.replace(path)
    seen.append(await looks(time, task))

    assert seen == [False, False, False, True]


async def test_a_change_during_the_run_is_seen_afterwards(tmp_path: Path):
    """A change during the run is noticed afterwards, by comparison with the content at the run's start."""
    path, time = tmp_path / "flow.yaml", clock.FakeClock()
    path.write_text("two")
    task = asyncio.create_task(watcher(path, time).changed(b"one"))

    assert await looks(time, task)


class Interrupting:
    """A clock that makes some changes of the file and then raises Ctrl-C."""

    def __init__(self, path: Path, changes: list[str]) -> None:
        self._path = path
        self._changes = changes
        self._fake = clock.FakeClock()
        self.now = self._fake.now
        self.monotonic = self._fake.monotonic

    async def sleep(self, seconds: float) -> None:
        """Change the file, or raise Ctrl-C."""
        if not self._changes:
            raise KeyboardInterrupt
        self._path.write_text(self._changes.pop(0))


def test_the_workflow_runs_again_after_each_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The workflow runs again after each change; an invalid one is reported, and Ctrl-C between runs ends with 0."""
    path, ran = tmp_path / "flow.yaml", []
    path.write_text("one")

    def run() -> int:
        ran.append(path.read_text())
        if ran[-1] == "broken":
            raise errors.RecipeInvalid("flow.yaml is not valid")
        return 1

    code = watcher(path, Interrupting(path, ["broken", "broken", "two"]), run).watch()

    assert (code, ran) == (0, ["one", "broken", "two"])
    assert "flow.yaml is not valid" in capsys.readouterr().err


def test_ctrl_c_during_a_run_ends_the_watch(tmp_path: Path):
    """Ctrl-C during a run ends the watch with exit code 130, and the run is not started again."""
    path = tmp_path / "flow.yaml"
    path.write_text("one")

    assert watcher(path, Interrupting(path, ["two"]), lambda: 130).watch() == 130


def test_a_missing_file_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A missing file is reported, and the workflow runs when the file appears."""
    path = tmp_path / "flow.yaml"
    code = watcher(path, Interrupting(path, ["one"]), lambda: 130).watch()

    assert code == 130
    assert "cannot be read" in capsys.readouterr().err
