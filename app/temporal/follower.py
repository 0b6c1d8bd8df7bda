"""The follower: gives change numbers to runs of other processes, by announced commits or by polling followed runs."""

from __future__ import annotations

import asyncio

from app import clock, errors
from app.engine import event_feed, stores

POLL_SECONDS = 0.25  # Time between two polls of the followed runs.
LISTENING_POLL_SECONDS = 5.0  # The same, while commits are announced.

_KEPT = 1024


class Follower:
    """Reports changes of runs."""

    def __init__(self, store: stores.RunStore, time: clock.Clock) -> None:
        self._store = store
        self._clock = time
        self._numbers: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        self._changed = asyncio.Event()
        self.commit_listener: event_feed.CommitListener | None = None
        """Announces what other processes commit; None: the follower only polls."""

    def listen(self) -> None:
        """Begin to listen to other processes, if they announce their commits."""
        if self.commit_listener is not None:
            self.commit_listener.start(self._note_written)

    async def stop(self) -> None:
        """Stop listening."""
        if self.commit_listener is not None:
            await self.commit_listener.stop()

    def number(self, run_id: str) -> int:
        """Return a run's present change number; from now on the run is followed."""
        number = self._numbers.pop(run_id, 1)
        self._numbers[run_id] = number
        if len(self._numbers) > _KEPT:
            forgotten = next(iter(self._numbers))
            del self._numbers[forgotten]
            self._newest.pop(forgotten, None)
        return number

    def note(self, run_id: str) -> None:
        """Give a run another number."""
        self._numbers[run_id] = self.number(run_id) + 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def differs(self, run_id: str, since: int) -> int:
        """Wait until a run's change number differs from `since`, and return it."""
        while self.number(run_id) == since:
            await self._changed.wait()
        return self.number(run_id)

    async def poll(self) -> None:
        """Poll the followed runs, forever."""
        while True:
            for run_id in list(self._numbers):
                await self._poll_run(run_id)
            is_listening = self.commit_listener is not None and self.commit_listener.is_listening
            await self._clock.sleep(LISTENING_POLL_SECONDS if is_listening else POLL_SECONDS)

    def _note_written(self, run_id: str | None) -> None:
        for each in list(self._numbers) if run_id is None else [run_id]:
            if each in self._numbers:
                self.note(each)

    async def _poll_run(self, run_id: str) -> None:
        known = self._newest.get(run_id)
        try:
            found = await self._store.read_events(run_id, known or 0)
        except (errors.ControlRoomError, errors.StorageFault):
            return
        newest = found[-1].seq if found else known or 0
        self._newest[run_id] = newest
        # The first poll counts as a change, too: the run may have moved between the request for its number and this
        # poll, and no later one would show that.
        if newest != known:
            self.note(run_id)
