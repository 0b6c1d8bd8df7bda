"""Active steps: the state of an open step that its phases share, kept over all its attempts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from app.domain.records import Record, Result
from app.engine import agent_ports
from app.engine.driver_scheduler import Ask
from app.engine.live_steps import LiveStep
from app.engine.spending import Reservation

NO_RESULT = Result()  # Placeholder for a result that does not exist yet.
NEVER = datetime.min.replace(tzinfo=UTC)  # Placeholder for an instant that has not come yet.


@dataclass(slots=True, kw_only=True, eq=False)
class ActiveStep(LiveStep):
    """An open step, with its present attempt."""

    ask: Ask  # Request of the driver.
    history: list[Record]  # Its living lines so far, of attempts that were not final.
    exchanges: tuple[agent_ports.Exchange, ...] = ()
    """Earlier exchanges of a conversation that a person had begun again."""
    idle: bool  # Whether its performer only waits, so that it needs no capacity.
    attempt: int = 0  # The present attempt; 0 before the first begins.
    started_at: datetime = NEVER  # When the present attempt began; `NEVER` before the first.
    announced_at: str = ""  # The same, in the form of lines; empty: not recorded yet.
    began_seconds: float = 0.0  # The same, in seconds of a clock that never runs backwards.
    duration_seconds: float = 0.0  # How long its performer took.
    result: Result = NO_RESULT  # Result of the present attempt.
    completed_at: datetime = NEVER  # When the present attempt ended.
    retry_at: str | None = None  # When the next attempt is due; None: the present attempt is final.
    begun: bool = False  # Whether an attempt has begun, or the run rested at this input, so that views show it.
    performing: bool = False  # Whether an interruption would cut off work.
    reserving: bool = False  # Whether it waits for room in a limit or budget.
    away: bool = False
    """Whether its performer is at work, so that the step does not need its run until the performer returns."""
    committing: bool = False  # Whether its record is being written; an interruption lets the write finish.
    is_last: bool = False
    """Whether no further attempt begins here: it was cut off while its record was written, or Temporal repeats it."""
    reservation: Reservation | None = None
    """Amounts reserved for the present attempt; None if it calls no agent."""
    task: asyncio.Task[None] | None = None  # The task that executes it.
