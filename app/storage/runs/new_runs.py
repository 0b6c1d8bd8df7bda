"""New runs: runs that are being created, or are created and not opened yet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

from app.domain import events, plain, runs
from app.storage.disk.disk_port import Lock
from app.storage.journal import chain
from app.storage.runs import authority, creation
from app.storage.runs.creation import Born
from app.storage.runs.events_file import Written
from app.storage.runs.opened_run import OpenedRun

_MOST_HELD = 256
"""Runs that are kept held between their creation and their opening; each costs a file descriptor."""

_CREATED = Written(last=1, counts={events.EventType.RUN_CREATED.value: 1})


@dataclass(slots=True)
class _NewRun:
    start: runs.RunStart
    anchor: str
    lock: Lock
    shown: bool

    def opened(self) -> OpenedRun:
        empty = chain.read(b"", self.anchor)
        return OpenedRun(
            authority=authority.judge(self.start.run_id, self.start, empty, empty),
            lock=self.lock,
            written=_CREATED,
            proven=frozenset(),
            unwritten=() if self.shown else (creation.created(self.start),),
        )


class NewRuns:
    """Keep new runs held and known, since as a rule each is opened at once."""

    def __init__(self) -> None:
        self._births: dict[str, asyncio.Future[None]] = {}
        self._held: dict[str, _NewRun] = {}

    @contextlib.contextmanager
    def birth(self, run_id: str) -> Iterator[None]:
        """Let openers of the run wait until the block is over."""
        birth: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._births[run_id] = birth
        try:
            yield
        finally:
            del self._births[run_id]
            birth.set_result(None)

    def keep(self, start: runs.RunStart, born: Born) -> bool:
        """Keep a run as it was made; one too many is let go of.

        Returns:
            Whether its projections need not be written now.
        """
        if born.lock is None:
            return born.durable
        if len(self._held) >= _MOST_HELD:
            born.lock.release()
            return born.durable
        self._held[start.run_id] = _NewRun(start, plain.labelled_sha256(born.content), born.lock, shown=born.durable)
        return True

    async def show(self, write: Callable[[runs.RunStart], Awaitable[bool]], run_ids: Iterable[str] | None) -> None:
        """Write the projections of runs that are not opened yet, each once.

        Args:
            write: Writes those of one, and returns whether it could.
            run_ids: None: all.
        """
        for run_id in list(self._held) if run_ids is None else run_ids:
            held = await self._of(run_id)
            if held is not None and not held.shown:
                with self.birth(run_id):
                    held.shown = await write(held.start)

    async def take(self, run_id: str) -> OpenedRun | None:
        """Hand a new run out; None if it must be read from its folder."""
        held = await self._of(run_id)
        self._held.pop(run_id, None)
        return None if held is None else held.opened()

    def let_go(self, run_id: str | None = None) -> None:
        """Let go of a run that was not opened, or of all of them."""
        for name in [run_id] if run_id is not None else list(self._held):
            if (held := self._held.pop(name, None)) is not None:
                held.lock.release()

    async def _of(self, run_id: str) -> _NewRun | None:
        while (birth := self._births.get(run_id)) is not None:
            await asyncio.shield(birth)
        return self._held.get(run_id)
