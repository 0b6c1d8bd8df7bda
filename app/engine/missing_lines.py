"""Missing lines: a run whose journal has lost lines waits for a person, since its steps would run again otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app import errors, printable
from app.domain.decisions import LINES_MISSING, Decisions
from app.domain.records import Record

if TYPE_CHECKING:
    from app.engine.driver_scheduler import DriverScheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingLines:
    """Journal lines that are gone, as a source other than the journal itself proves."""

    file: str  # The journal.
    lines: int  # Number of lines that the journal has.
    known_lines: int  # Number of lines that it had; equal to `lines` if it is unknown how many more there were.
    told_by: str  # Source that proves the missing lines.

    def error(self, run_id: str) -> errors.StepError:
        """Return the error that parks the run, with the file and what a person can do."""
        of = f" of {self.known_lines}" if self.known_lines > self.lines else ""
        held = f"{self.lines}{of} lines" if of else printable.counted(self.lines, "line")
        message = (
            f"run {run_id}: {self.file} has {held}, {self.told_by} shows more; steps whose lines are"
            " gone would run again. Stop the service and put the file back from a copy, or unpause the run to continue"
            " from the lines that are left, or cancel it"
        )
        return errors.StepError(message, code=LINES_MISSING, detail=dataclasses.asdict(self))


def begun_unrequested(
    records: Iterable[Record], decisions: Decisions, scheduler: DriverScheduler
) -> MissingLines | None:
    """Return the missing lines if steps were begun that a driver with this journal would not have requested."""
    lines = list(records)
    requested = {record.key for record in lines} | scheduler.asks.keys()
    unexplained = [
        key
        for key, attempts in decisions.attempts.items()
        if key not in requested and not scheduler.was_cancelled(attempts[-1].branch)
    ]
    if not unexplained:
        return None
    told_by = f"control.jsonl (begun: {', '.join(unexplained):.200})"
    return MissingLines(file="steps.jsonl", lines=len(lines), known_lines=len(lines), told_by=told_by)
