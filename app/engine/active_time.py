"""Active time: measures how long at least one step of a run has been at work."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping, Sequence

from app import clock
from app.domain import file_operations, operations, plain, records
from app.domain.decisions import Started
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
    """The time during which at least one step of a run was at work."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []
        self._total = 0.0
        self._read = 0
        self.recorded = 0.0
        """Active seconds according to the journal lines read so far."""

    def read(self, lines: Sequence[records.Record]) -> None:
        """Add the journal lines that have not been read yet."""
        for record in lines[self._read :]:
            if not _only_waits(record):
                self._add(clock.instant(record.started_at).timestamp(), clock.instant(record.completed_at).timestamp())
        self._read, self.recorded = len(lines), self._total

    def add(self, spans: Iterable[tuple[float, float]]) -> None:
        """Add attempts that left no journal line; call it after `read`."""
        for start, end in spans:
            self._add(start, end)

    def until(self, now: float, oldest_start: float | None) -> float:
        """Return the active seconds until now.

        Args:
            oldest_start: When the oldest step that is at work now began; None: no step is at work.
        """
        if oldest_start is None:
            return self._total
        first = bisect.bisect_left(self._spans, (oldest_start, oldest_start))
        before = max(oldest_start, self._spans[first - 1][1]) if first else oldest_start
        behind = sum(end - start for start, end in self._spans[first:])
        return self._total - behind + max(0.0, now - before)

    def _add(self, start: float, end: float) -> None:
        first = bisect.bisect_left(self._spans, (start, start))
        if first and self._spans[first - 1][1] >= start:
            first -= 1
        last, end = first, max(start, end)
        while last < len(self._spans) and self._spans[last][0] <= end:
            span_start, span_end = self._spans[last]
            start, end, last = min(start, span_start), max(end, span_end), last + 1
            self._total -= span_end - span_start
        self._spans[first:last] = [(start, end)]
        self._total += end - start


class WithoutLine:
    """The attempts at work, since a process took the run up, that have left no journal line.

    Args:
        attempts: Attempts begun, by step.
        asks: The driver's open requests after the last line.
    """

    def __init__(self, loaded: Loaded, attempts: Mapping[str, Sequence[Started]], asks: Mapping[str, Ask]) -> None:
        self.cut_off: list[tuple[float, float]] = []
        """Start and end of each attempt that was cut off; its end is the start of the next attempt of the same step."""
        self.begun: float | None = None
        """When the oldest of the attempts that are still the newest of their step began; None: there is none."""
        since = loaded.decisions.taken_at
        if since is None or not attempts:
            return
        lines = {(record.key, record.attempt): _only_waits(record) for record in loaded.records}
        works = {key: not waits for (key, _), waits in lines.items()}
        works |= {key: not ask.operation.idle for key, ask in asks.items()}
        for key in filter(works.get, attempts):
            found = [one for one in attempts[key] if one.at >= since]
            open_since = [clock.instant(one.at).timestamp() for one in found[-1:] if key in asks]
            if open_since and (key, found[-1].attempt) not in lines:
                self.begun = min(open_since[0], self.begun or open_since[0])
            for one, further in itertools.pairwise(found):
                if (key, one.attempt) not in lines:
                    self.cut_off.append((clock.instant(one.at).timestamp(), clock.instant(further.at).timestamp()))


def taken_facts(loaded: Loaded, asks: Mapping[str, Ask], now: str) -> dict[str, plain.Json]:
    """Return the fields of the `taken` line: the active time of attempts that have left no line.

    If a pause or a stop released them, they count until that line. After a kill they count until now, since no file
    records when the process died.
    """
    decided = loaded.decisions
    until, attempts = (decided.released.at, decided.released.attempts) if decided.released else (now, decided.attempts)
    left = WithoutLine(loaded, attempts, asks)
    if left.begun is None and not left.cut_off:
        return {}
    active = ActiveTime()
    active.read(loaded.records)
    active.add(left.cut_off)
    cut = active.until(clock.instant(until).timestamp(), left.begun) - active.recorded
    return {"cut_seconds": round(cut, 3)} if cut >= _LEAST_SECONDS else {}


def _only_waits(record: records.Record) -> bool:
    operation = record.line["operation"]
    body = operation.get("body") or {}
    # Of the operations too large for a line, only those of gates and tool calls are kept in blobs.
    return (operation.get("kind") or body.get("kind")) in _WAITING or (
        "blob" in operation and record.line.get("tool") is None
    )
