"""Homes: what the open steps of a run write with, so that they can outlive the runner that began them.

While a run is asleep nobody is at home: a step that is over, or that writes a log, asks for its run and waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from app import errors
from app.domain.records import Record
from app.engine.light_event import LightEvent
from app.engine.space_retry import RetryUntilSpace
from app.engine.stores import RunLog


class RunWriter:
    """The log of a run and whoever hears of its steps; all of it is absent while the run is asleep."""

    __slots__ = (
        "_call",
        "_deserted",
        "_ended",
        "_moved_in",
        "_run_id",
        "_visitors",
        "began",
        "durability",
        "enter",
        "landed",
        "log",
        "over",
        "wanted",
    )

    log: RunLog
    """The run's folder."""
    durability: RetryUntilSpace
    """Guard of its writes."""
    enter: Callable[[], Awaitable[None]]
    """Waits for the run's seat."""
    began: Callable[[bool], None]
    """Told that a try has begun, and whether it only waits."""
    landed: Callable[[Record], None]
    """Told of each record."""
    over: Callable[[asyncio.Task[None]], None]
    """Told of each task that is over."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._moved_in = LightEvent()
        self._call: Callable[[str], None] | None = None
        self._ended: list[asyncio.Task[None]] = []
        self._visitors = 0
        self._deserted = False
        self.wanted = False
        """Whether a step has asked for its run since it fell asleep."""

    def attach(
        self,
        log: RunLog,
        durability: RetryUntilSpace,
        enter: Callable[[], Awaitable[None]],
        began: Callable[[bool], None],
        landed: Callable[[Record], None],
        over: Callable[[asyncio.Task[None]], None],
    ) -> None:
        """Let whoever waits for the run go on."""
        self.log = log
        self.durability = durability
        self.enter = enter
        self.began = began
        self.landed = landed
        self.over = over
        self._call = None
        self.wanted = False
        self._moved_in.give()
        ended, self._ended = self._ended, []
        for task in ended:
            over(task)

    def detach(self, call: Callable[[str], None]) -> None:
        """Let everybody wait who needs the run from now on.

        Args:
            call: Told which run somebody needs.
        """
        del self.log, self.durability, self.enter, self.began, self.landed, self.over
        self._moved_in.take_back()
        self._call = call

    def desert(self) -> None:
        """Say that nobody will move in any more; whoever waits gets an `InterruptionFault`."""
        self._deserted = True
        self._moved_in.give()

    @property
    def is_attached(self) -> bool:
        """Tell whether the run is awake."""
        return self._moved_in.is_given()

    @property
    def is_quiet(self) -> bool:
        """Tell whether no step is using the log on its performer's behalf."""
        return not self._visitors

    @asynccontextmanager
    async def visit(self) -> AsyncIterator[RunLog]:
        """Use the log while its performer is at work; the run does not fall asleep meanwhile.

        Raises:
            errors.InterruptionFault: the run was given up.
        """
        await self.reach()
        self._visitors += 1
        try:
            yield self.log
        finally:
            self._visitors -= 1

    async def reach(self) -> None:
        """Wait until the run is awake.

        Raises:
            errors.InterruptionFault: the run was given up.
        """
        if not self._moved_in.is_given():
            self._ask()
            await self._moved_in.given()
        if self._deserted:
            raise errors.InterruptionFault

    def note_over(self, task: asyncio.Task[None]) -> None:
        """Pass on that a task is over."""
        if self._deserted:
            return
        if self._moved_in.is_given():
            self.over(task)
        else:
            self._ended.append(task)
            self._ask()

    def _ask(self) -> None:
        self.wanted = True
        if self._call is not None:
            self._call(self._run_id)
