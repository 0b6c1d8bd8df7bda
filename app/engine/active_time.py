"""Active time: the time in which at least one step of a run was at work."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from app import clock
from app.domain import file_operations, operations, plain, records
from app.engine.driver_scheduler import Ask
from app.engine.stores import Loaded

_LEAST_SECONDS = 0.001

_WAITING = frozenset(
    kind.kind
    for kind in (
        operations.Timer,
        operations.Input,
        operations.Gate,
        operations.ChildRun,
        file_operations.WaitForFiles,
    )
)


class ActiveTime:
    """The time in which at least one step of a run was at work."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []
        self._total = 0.0
        self._read = 0

    def read(self, found: Sequence[records.Record]) -> None:
        """Add the lines of the journal that are new."""
        for record in found[self._read :]:
            if not _only_waits(record):
                self._add(clock.instant(record.started_at).timestamp(), clock.instant(record.completed_at).timestamp())
        self._read = len(found)

    def until(self, now: float, begun: float | None) -> float:
        """Return the seconds until now.

        Args:
            begun: When the oldest step that is at work began; None: none is.
        """
        if begun is None:
            return self._total
        first = bisect.bisect_left(self._spans, (begun, begun))
        before = max(begun, self._spans[first - 1][1]) if first else begun
        behind = sum(end - start for start, end in self._spans[first:])
        return self._total - behind + max(0.0, now - before)

    def _add(self, start: float, end: float) -> None:
        first = bisect.bisect_left(self._spans, (start, start))
        if first and self._spans[first - 1][1] >= start:
            first -= 1
        last, end = first, max(start, end)
        while last < len(self._spans) and self._spans[last][0] <= end:
            begun, over = self._spans[last]
            start, end, last = min(start, begun), max(end, over), last + 1
            self._total -= over - begun
        self._spans[first:last] = [(start, end)]
        self._total += end - start


def taken_facts(loaded: Loaded, asks: Mapping[str, Ask], now: str) -> dict[str, plain.Json]:
    """Return the fields of the line by which a process takes a run up: the active time of attempts left without a line.

    A process that stopped has written when it let them go. After a kill they count until now, since no file says when
    it happened.
    """
    decided, found = loaded.decisions, loaded.records
    until, tries = decided.let_go or (now, decided.attempts)
    since = decided.taken_at
    if since is None or not tries:
        return {}
    # Of the attempts of a key the newest is the one that was open.
    newest = [tries[key][-1] for key, ask in asks.items() if key in tries and not ask.operation.idle]
    recorded = {(record.key, record.attempt) for record in found} if newest else set()
    begun = [one.at for one in newest if one.at >= since and (one.key, one.attempt) not in recorded]
    if not begun:
        return {}
    active, end = ActiveTime(), clock.instant(until).timestamp()
    active.read(found)
    cut = active.until(end, clock.instant(min(begun)).timestamp()) - active.until(end, None)
    return {"cut_seconds": round(cut, 3)} if cut >= _LEAST_SECONDS else {}


def _only_waits(record: records.Record) -> bool:
    asked = record.line["operation"]
    body = asked.get("body") or {}
    # Of operations too large for a line, only gates and calls of tools are kept in files of their own.
    return (asked.get("kind") or body.get("kind")) in _WAITING or ("blob" in asked and record.line.get("tool") is None)
