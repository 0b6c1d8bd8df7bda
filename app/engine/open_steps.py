"""Works: steps that are open."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from app.domain.records import Record
from app.engine import ports
from app.engine.driver_scheduler import Ask


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """A step that is open."""

    ask: Ask
    """What its driver asks for."""
    history: list[Record]
    """Its living lines so far: tries that were not final."""
    exchanges: tuple[ports.Exchange, ...] = ()
    """What was said before in a conversation that a person had begun again."""
    attempt: int = 0
    """The present try; 0 before the first begins."""
    started_at: datetime | None = None
    """When the present try began."""
    began: float = 0.0
    """The same, in seconds of a clock that never runs backwards."""
    begun: bool = False
    """Whether a try has begun, so that it is seen."""
    performing: bool = False
    """Whether something is under way that an interruption would cut off."""
    away: bool = False
    """Whether it is with its performer, and needs nothing of its run before it comes back."""
    committing: bool = False
    """Whether its record is being written, which goes on when the step is interrupted."""
    cut: bool = False
    """Whether it was interrupted meanwhile, so that no further try begins."""
    task: asyncio.Task[None] | None = field(default=None)
    """The task that carries it out."""

    @property
    def idle(self) -> bool:
        """Tell whether it only waits."""
        return self.ask.operation.idle
