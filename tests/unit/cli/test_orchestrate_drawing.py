"""Drawing the progress of a workflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app import clock
from app.cli.orchestrate import drawing

STEPS = ("Prepare", "ProcessData", "Report")
ITEMS = {"ProcessData": ["item1.csv", "item2.csv"], "ProcessData[1].Inner": ["x"]}

EVENTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("step.started", "Prepare", {}),
    ("step.finished", "Prepare", {"status": "done"}),
    ("step.started", "ProcessData[0].Work.files", {}),
    ("step.finished", "ProcessData[0].Work.files", {"status": "done"}),
    ("step.started", "ProcessData[0].Work", {}),
    ("step.failed", "ProcessData[0].Work", {}),
    ("step.started", "ProcessData[1].Inner[0].Deep", {}),
    ("step.finished", "ProcessData[1].Inner[0].Deep", {"status": "done"}),
    ("step.failed", "ProcessData.moved[1]", {}),
    ("step.finished", "Report", {"status": "skipped"}),
)

LINES = """\
[1/3] Prepare: Running (0s)...
[1/3] Prepare: Completed (0s)
[2/3] ProcessData: Running (0s)...
  └─ for_each: [1/2] Processing item1.csv
  └─ for_each: [2/2] Processing item2.csv
     └─ for_each: [1/1] Processing x
[2/3] ProcessData: Completed, 1 step failed (15s)
[3/3] Report: Running (0s)...
[3/3] Report: Skipped (0s)
"""


async def items(loop: str) -> Sequence[Any]:
    """Return the items of a loop."""
    return ITEMS[loop]


async def draw(time: clock.FakeClock, *, live: bool) -> None:
    """Draw all events, the last ones fifteen seconds later."""
    drawn = drawing.Drawing(STEPS, items, time, live=live)
    for type, key, data in EVENTS:
        if key == "Report":
            time.advance(15)
        await drawn.show({"type": type, "key": key, "data": data})
    await drawn.show({"type": "run.ended", "key": None, "data": {}})


async def test_each_change_is_a_line(capsys: pytest.CaptureFixture[str]):
    """Without a terminal, each change of a step or item is one line; that of a loop counts the steps that failed."""
    await draw(clock.FakeClock(), live=False)
    told = capsys.readouterr()

    assert (told.out, told.err) == ("", LINES)


async def test_a_person_sees_lines_drawn_in_place(capsys: pytest.CaptureFixture[str]):
    """On a terminal, running steps are drawn over themselves, and finished ones remain."""
    await draw(clock.FakeClock(), live=True)
    told = capsys.readouterr().err
    lasting = [line for line in screen(told) if line]

    assert "\x1b[3F\x1b[J" in told
    assert lasting == [line for line in LINES.splitlines() if "Completed" in line or "Skipped" in line]


async def test_a_failed_preparation_is_drawn_as_failed(capsys: pytest.CaptureFixture[str]):
    """A step that fails in its preparation is drawn as failed."""
    drawn = drawing.Drawing(STEPS, items, clock.FakeClock(), live=False)
    await drawn.show({"type": "step.started", "key": "Report.files", "data": {}})
    await drawn.show({"type": "step.failed", "key": "Report.files", "data": {}})

    assert capsys.readouterr().err == "[3/3] Report: Running (0s)...\n[3/3] Report: Failed (0s)\n"


def screen(text: str) -> list[str]:
    """Return the lines that a terminal shows at the end."""
    lines: list[str] = []
    for part in text.split("\x1b["):
        if part[1:2] == "F":
            del lines[len(lines) - int(part[0]) :]
            part = part[2:]
        part = part.removeprefix("J")
        lines += part.splitlines()
    return lines
