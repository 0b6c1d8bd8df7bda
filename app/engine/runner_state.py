"""Runner state: what a runner keeps between two phases: its open steps, their reports, and why it is to stop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from app.domain.records import Record
from app.engine.active_step import ActiveStep
from app.engine.run_equipment import Parked

Halt = Literal["pause", "stop"]


@dataclass(slots=True, kw_only=True, eq=False)
class OpenSteps:
    """The steps that are with the executor."""

    by_key: dict[str, ActiveStep]  # Steps by their keys.
    busy: int  # Number of them that do more than wait; at 0, the run releases its capacity.
    closing: list[asyncio.Task[None]] = field(default_factory=list)  # Tasks of cut-off steps that have not ended yet.


@dataclass(slots=True, kw_only=True, eq=False)
class Reports:
    """The reports of steps since the last `record` phase."""

    records: dict[int, Record] = field(default_factory=dict)  # Durable records, by their position in the journal.
    failures: list[BaseException] = field(default_factory=list)  # Reasons why steps could not be executed.
    moved: bool = False  # Whether a report has arrived, so that the runner must not wait.
    waiting: asyncio.Future[None] | None = None  # Done when a report arrives; None: the runner does not wait.


@dataclass(slots=True, kw_only=True, eq=False)
class StopRequest:
    """Why the run begins no further step."""

    halt: Halt | None = None  # `pause`: at the next step boundary; `stop`: because the service stops.
    parked: Parked | None = None  # The fault that parks the run, if one does.
    cancelled: bool  # Whether the run is to end as cancelled; takes precedence over the others.
    evicted: bool = False  # Whether another runner will continue these steps.
