"""Copies of the state file, made before each step is performed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from app import bootstrap
from app.cli.orchestrate import backups
from app.domain import operations, records
from app.engine import ports
from tests.unit import calls

RUN = "20260210T143000Z-abc123"


class Performing:
    """A performer that records the keys of its calls."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def perform(self, call: ports.Call) -> records.Result:
        """Record the key of a step."""
        self.keys.append(call.key)
        return records.Result(output=None)


class Folder:
    """A run's folder whose state counts how often it was written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shown = 0
        self.inner = Performing()
        self.kept = backups.Backups()
        self.kept.show = self.show

    async def show(self, run_id: str) -> None:
        """Write the state file."""
        assert run_id == RUN
        self.shown += 1
        (self.path / "state.json").write_text(json.dumps(self.shown))

    async def perform(self, *keys: str, slot: str | None = None, visit: int = 1) -> None:
        """Perform the operations of a step."""
        performer = self.kept.platform(bootstrap.real_platform({})).watch(self.inner)
        place = records.Place(step_id=keys[-1], output_slot=slot or keys[-1], visit=visit)
        for key in keys:
            await performer.perform(_call(key, place, self.path))

    def backups(self) -> dict[str, int]:
        """Return the contents of the backups by step."""
        found = self.path.glob("state.json.step_*.bak")
        return {path.name[len("state.json.step_") : -len(".bak")]: json.loads(path.read_text()) for path in found}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Return a run's folder."""
    return Folder(tmp_path)


async def test_the_last_three_steps_are_backed_up(folder: Folder):
    """Each step has a copy of the state before it, and only the newest three copies are kept."""
    for step in ("A", "B", "C", "D"):
        await folder.perform(step)

    assert folder.backups() == {"B": 2, "C": 3, "D": 4}
    assert folder.inner.keys == ["A", "B", "C", "D"]
    assert oct((folder.path / "state.json.step_D.bak").stat().st_mode)[-3:] == "600"


async def test_a_step_is_backed_up_once(folder: Folder):
    """A step with several operations or tries has one copy, made before it began."""
    await folder.perform("A.when", "A.files", "A", "A", slot="A")

    assert (folder.backups(), folder.shown) == ({"A": 1}, 1)


async def test_a_further_visit_replaces_the_copy_and_is_the_newest(folder: Folder):
    """A further visit of a step replaces its copy, which then counts as the newest."""
    await folder.perform("A", slot="A")
    for step in ("B", "C"):
        await folder.perform(step)
    await folder.perform("A#2", slot="A", visit=2)
    await folder.perform("D")

    assert folder.backups() == {"C": 3, "A": 4, "D": 5}


async def test_iterations_have_copies_of_their_own(folder: Folder):
    """Steps of loop iterations have copies of their own."""
    await folder.perform("Each[0].Say", slot="Each[0].Say")
    await folder.perform("Each[1].Say", slot="Each[1].Say")

    assert folder.backups() == {"Each[0].Say": 1, "Each[1].Say": 2}


async def test_copies_of_an_earlier_process_count(folder: Folder):
    """A resumed run counts the copies of an earlier process and keeps three in all."""
    for step in ("A", "B", "C"):
        await folder.perform(step)
    resumed = Folder(folder.path)
    await resumed.perform("D")

    assert set(resumed.backups()) == {"B", "C", "D"}


async def test_a_step_that_is_skipped_needs_none(folder: Folder):
    """A skipped step has no copy."""
    place = records.Place(step_id="A", output_slot="A")
    skip = dataclasses.replace(_call("A", place, folder.path), operation=operations.Skip(reason="so"))
    await folder.kept.platform(bootstrap.real_platform({})).watch(folder.inner).perform(skip)

    assert (folder.inner.keys, folder.backups()) == (["A"], {})


async def test_a_step_that_cannot_be_backed_up_is_performed(folder: Folder):
    """A step is performed even if its copy cannot be made."""

    async def nothing(run_id: str) -> None:
        pass

    folder.kept.show = nothing
    await folder.perform("A")

    assert (folder.inner.keys, folder.backups()) == (["A"], {})


def _call(key: str, place: records.Place, folder: Path) -> ports.Call:
    made = calls.Harness().call(operations.Command(argv=("true",)), key)
    return dataclasses.replace(made, place=place, run=dataclasses.replace(made.run, folder=str(folder)))
