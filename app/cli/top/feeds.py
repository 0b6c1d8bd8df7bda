"""Feeds: the data of the service, read again when they change, despite lost connections and restarts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, time
from typing import Any

from app import clock, errors
from app.cli import http_client

_WAIT_SECONDS = 15.0  # Longest time that the service delays a poll without a change.
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.5, 5.0  # Wait before the next attempt after a failed one; it doubles.


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """One kind of data that the service provides."""

    name: str  # Field of the board for the data.
    path: str  # Address, with a placeholder for the begin of the local day.
    kind: type  # Type of the answer.


FEEDS = (
    Feed(name="stats", path="/api/stats?today={today}", kind=dict),
    Feed(name="gates", path="/api/gates?limit=100", kind=list),
    Feed(name="live", path="/api/runs?limit=200&status=running&status=waiting&status=paused&status=pending", kind=list),
    Feed(name="newest", path="/api/runs?limit=50", kind=list),
)


@dataclass(slots=True, kw_only=True)
class Board:
    """The latest data of the service."""

    stats: dict[str, Any] = field(default_factory=dict)  # Counts and sums over all runs.
    gates: list[Any] = field(default_factory=list)  # Open gates.
    live: list[Any] = field(default_factory=list)  # Runs that have not ended, newest first.
    newest: list[Any] = field(default_factory=list)  # The newest runs, ended or not.
    lost: dict[str, str] = field(default_factory=dict)
    """Reason why a feed gets no answer, by its name; empty while the service answers."""
    lost_at: float | None = None  # Monotonic time of the first failure; None while the service answers.

    @property
    def runs(self) -> list[Any]:
        """Return every run once, newest first, in the later version of both lists."""
        seen: dict[str, Any] = {}
        for run in [*self.live, *self.newest]:
            known = seen.get(run["run_id"])
            if known is None or known["updated_at"] < run["updated_at"]:
                seen[run["run_id"]] = run
        return sorted(seen.values(), key=lambda run: (run["created_at"], run["run_id"]), reverse=True)


class Source:
    """Keep a board up to date."""

    def __init__(self, client: http_client.HttpClient, at: clock.Clock) -> None:
        self.client = client
        """Client of the service."""
        self.clock = at
        """Clock."""
        self.board = Board()
        """The latest data."""
        self.feeds: list[Feed] = []
        """Feeds that the service offers; a service of version 0.1.0 has no sums."""

    async def check(self) -> None:
        """Read each feed once, and find out which of them exist.

        Raises:
            errors.ControlRoomError: the service cannot be reached, or refuses.
        """
        for feed in FEEDS:
            # A service of an earlier version lacks the address, or a filter of it.
            with contextlib.suppress(errors.NotFound, errors.RequestInvalid):
                await self._read(feed, None, 0)
                self.feeds.append(feed)

    async def follow(self, feed: Feed, changed: Callable[[], None]) -> None:
        """Keep one field of the board up to date without end; call `changed` after each change of the board."""
        etag, pause = None, _SHORTEST_SECONDS
        # Without end: the screen outlives any service, and finds the next one.
        while True:
            try:
                etag = await self._read(feed, etag, _WAIT_SECONDS if etag else 0)
            except errors.ControlRoomError as error:
                self._lose(feed, error.message)
                changed()
                await self.clock.sleep(pause)
                # The next request does not wait for a change, so that the return of the service shows immediately.
                etag, pause = None, min(2 * pause, _LONGEST_SECONDS)
            else:
                pause = _SHORTEST_SECONDS
                self._find(feed)
                changed()

    async def _read(self, feed: Feed, etag: str | None, wait: float) -> str | None:
        path = feed.path.format(today=clock.stamp(local_midnight(self.clock.now())))
        found = await self.client.changed(path, feed.kind, etag, wait)
        if found is None:
            return etag
        value, etag = found
        setattr(self.board, feed.name, value)
        return etag

    def _lose(self, feed: Feed, reason: str) -> None:
        self.board.lost[feed.name] = reason
        if self.board.lost_at is None:
            self.board.lost_at = self.clock.monotonic()

    def _find(self, feed: Feed) -> None:
        self.board.lost.pop(feed.name, None)
        if not self.board.lost:
            self.board.lost_at = None


def local_midnight(now: datetime) -> datetime:
    """Return the beginning of the day in this machine's time zone."""
    # Combined without an offset: midnight may have another one than the present time.
    return datetime.combine(now.astimezone().date(), time.min).astimezone()
