"""Step attempts: the one value that a step's phases pass on, kept over all attempts of the step."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from app.domain.records import Record, Result
from app.engine import ports
from app.engine.driver_scheduler import Ask
from app.engine.live_steps import LiveStep
from app.engine.spending import Reservation

NO_RESULT = Result()  # In place of a result that is not there yet.
NEVER = datetime.min.replace(tzinfo=UTC)  # In place of an instant that has not come yet.


@dataclass(slots=True, kw_only=True, eq=False)
class StepAttempt(LiveStep):
    """A step that is open, and its present attempt."""

    ask: Ask  # What its driver asks for.
    history: list[Record]  # Its living lines so far: attempts that were not final.
    exchanges: tuple[ports.Exchange, ...] = ()
    """Earlier prompts and replies of a conversation that a person had begun again."""
    idle: bool  # Whether performing it only waits, so that it needs no capacity.
    attempt: int = 0  # The present attempt; 0 before the first begins.
    started_at: datetime = NEVER  # When the present attempt began; `NEVER` before the first.
    announced_at: str = ""  # The same, as lines hold it; empty: not written down yet.
    began_seconds: float = 0.0  # The same, in seconds of a clock that never runs backwards.
    duration_seconds: float = 0.0  # How long its performer took.
    result: Result = NO_RESULT  # What came of the present attempt.
    completed_at: datetime = NEVER  # When the present attempt was over.
    retry_at: str | None = None  # When the next attempt is due; None: the present one is final.
    begun: bool = False  # Whether an attempt has begun, or the run rested at it, so that it is shown.
    performing: bool = False  # Whether something is under way that an interruption would cut off.
    reserving: bool = False  # Whether it waits until a limit or budget has room beside other calls.
    away: bool = False
    """Whether it is with its performer, and needs nothing of its run until the performer returns."""
    committing: bool = False  # Whether its record is being written, which an interruption lets finish.
    cut: bool = False
    """Whether it was interrupted while its record was written, so that no further attempt begins."""
    reservation: Reservation | None = None
    """Amounts reserved for the present attempt; None if it calls no agent."""
    task: asyncio.Task[None] | None = None  # The task that executes it.
