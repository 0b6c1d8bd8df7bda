"""Loops of many items: the last item costs as much as the first."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.acceptance import processes
from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import FLOW, loop, step

ITEMS = 10_000
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_last_item_costs_what_the_first_did(workspace: workspaces.Workspace) -> None:
    """Of 10,000 items the last two thousand take no more processor time than the first two thousand, start excluded."""
    workspace.flow(
        step("List", "seq", str(ITEMS), output_capture="lines"),
        loop("Each", step("Work", "true"), items_from="steps.List.lines"),
    )
    with workspaces.going("run", FLOW, "--quiet", workspace=workspace) as process:
        marks = asyncio.run(_watched(process, workspace, (500, 2500, 8000, 10_000)))
        code = process.wait(100)
    state = workspaces.Finished(code, "", "", workspace.runs / "latest").state
    early, late = marks[1] - marks[0], marks[3] - marks[2]

    assert code == 0
    assert len(state["steps"]["Each"]) == ITEMS
    assert state["steps"]["Each"][-1]["Work"]["status"] == "completed"
    assert late < 1.5 * early, marks


async def _watched(process: processes.Started, workspace: workspaces.Workspace, marks: tuple[int, ...]) -> list[float]:
    """Return the processor time of a process at each of the given numbers of journal lines, or at its end."""
    journal = workspace.runs / "latest" / "steps.jsonl"
    read, lines, used = 0, 0, 0.0
    seen: list[float] = []
    while len(seen) < len(marks):
        used = _cpu_seconds(process.pid) or used
        if journal.exists():
            with journal.open("rb") as file:
                file.seek(read)
                fresh = file.read()
            read, lines = read + len(fresh), lines + fresh.count(b"\n")
        while len(seen) < len(marks) and (lines >= marks[len(seen)] or process.poll() is not None):
            seen.append(used)
        await asyncio.sleep(0.02)
    return seen


def _cpu_seconds(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / TICKS
