"""What a runner remembers between two phases: its open steps, what they have reported, and why it is to stop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from app.domain.records import Record
from app.engine.run_equipment import Parked
from app.engine.step_attempt import StepAttempt

Halt = Literal["pause", "stop"]


@dataclass(slots=True, kw_only=True, eq=False)
class OpenSteps:
    """The steps that are with the executor."""

    by_key: dict[str, StepAttempt]  # Steps by their keys.
    busy: int  # How many of them do more than wait; without any, the run gives its capacity back.
    closing: list[asyncio.Task[None]] = field(default_factory=list)  # Tasks of steps that were cut off and still end.


@dataclass(slots=True, kw_only=True, eq=False)
class Reports:
    """What steps have reported since the last `record` phase."""

    records: dict[int, Record] = field(default_factory=dict)  # Durable records, by their position in the journal.
    failures: list[BaseException] = field(default_factory=list)  # Why steps could not be executed.
    moved: bool = False  # Whether something has happened, so that the runner must not wait.
    waiting: asyncio.Future[None] | None = None  # Done when something happens; None: the runner does not wait.


@dataclass(slots=True, kw_only=True, eq=False)
class StopRequest:
    """Why the run begins no further step."""

    halt: Halt | None = None  # `pause`: at the next step boundary; `stop`: because the service stops.
    parked: Parked | None = None  # The fault that parks the run, if one does.
    cancelled: bool  # Whether the run is to end as cancelled; wins over the others.
    evicted: bool = False  # Whether another runner will continue with these steps.
