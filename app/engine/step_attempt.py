"""Step attempts: the value that the phases of a step share, kept over all its attempts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from app.domain.records import Record, Result
from app.engine import ports
from app.engine.driver_scheduler import Ask
from app.engine.live_steps import LiveStep
from app.engine.spending import Reservation

NO_RESULT = Result()  # Stands for a result that does not exist yet.
NEVER = datetime.min.replace(tzinfo=UTC)  # Stands for an instant that has not come yet.


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
    result: Result = NO_RESULT  # Result of the present attempt.
    completed_at: datetime = NEVER  # When the present attempt ended.
    retry_at: str | None = None  # When the next attempt is due; None: the present one is final.
    begun: bool = False  # Whether an attempt has begun, or the run rested at it, so that it is shown.
    performing: bool = False  # Whether an interruption would cut something off.
    reserving: bool = False  # Whether it waits for room in a limit or budget.
    away: bool = False
    """Whether its performer has it, so that it does not need its run until the performer returns."""
    committing: bool = False  # Whether its record is being written; an interruption lets that finish.
    cut: bool = False
    """Whether it was interrupted while its record was written, so that no further attempt begins."""
    reservation: Reservation | None = None
    """Amounts reserved for the present attempt; None if it calls no agent."""
    task: asyncio.Task[None] | None = None  # The task that executes it.
