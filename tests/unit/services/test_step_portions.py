"""Portions of steps: each portion equals its part of the consolidated answer, and reads only its own lines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import overload

import pytest

from app.domain import records, runs, states, views
from app.services import run_reader, step_portions
from tests.unit.engine import samples

TOOL = samples.tool("x")


class Watched(Sequence[records.Record]):
    """Records that count how often they are read."""

    def __init__(self, lines: Sequence[records.Record]) -> None:
        self.lines = lines
        self.read = 0

    @overload
    def __getitem__(self, index: int) -> records.Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[records.Record]: ...
    def __getitem__(self, index: int | slice) -> records.Record | Sequence[records.Record]:
        """Return records, and count them."""
        found = self.lines[index]
        self.read += 1 if isinstance(found, records.Record) else len(found)
        return found

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.lines)


def repeated(count: int, every: int) -> list[records.Record]:
    """Return journal lines of steps, some of which were repeated before their neighbour was done."""
    lines: list[records.Record] = []
    for number in range(count):
        is_repeated = number % every == 0
        if is_repeated:
            failed = samples.record(f"s{number}", TOOL, len(lines), status=states.StepState.FAILED)
            lines.append(dataclasses.replace(failed, final=False))
        lines.append(samples.record(f"n{number}", TOOL, len(lines)))
        lines.append(samples.record(f"s{number}", TOOL, len(lines), attempt=1 + is_repeated))
    return lines


def view(lines: Sequence[records.Record]) -> views.RunView:
    """Return a run in memory with these lines."""
    counted = [line for line in lines if line.final]
    start: runs.RunStart = samples.start()
    return views.RunView(start=start, status=states.RunState.RUNNING, records=lines, counted=counted)


@pytest.mark.parametrize("limit", [1, 7, 200])
async def test_all_portions_equal_the_consolidated_answer(limit: int) -> None:
    """All portions together are the steps of the consolidated answer, with their attempts."""
    shown = view(repeated(70, 3))
    whole = json.loads(run_reader.RunResponseCache().encoded(shown, None))["steps"]
    found, after = [], -1
    while True:
        portion = await step_portions.portion(shown, after, limit)
        found += json.loads(portion.body)
        if portion.last is None:
            break
        after = portion.last

    assert found == whole
    assert sum("attempts" in step for step in found) == 24


async def test_a_portion_is_read_by_its_index() -> None:
    """A portion deep in a long run reads only its own lines, and a portion after the end is empty."""
    lines = Watched(repeated(5_000, 50))
    shown = view(lines.lines)
    watched = dataclasses.replace(shown, records=lines)
    portion = await step_portions.portion(watched, 8_799, 200)
    end = await step_portions.portion(watched, 9_999, 200)

    assert [step["key"] for step in json.loads(portion.body)][::199] == ["n4400", "s4499"]
    assert portion.last == 8_999
    assert lines.read <= 210
    assert (json.loads(end.body), end.last) == ([], None)
