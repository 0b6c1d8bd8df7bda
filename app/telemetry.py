"""Telemetry: one JSON object per log line, and metrics in a registry of their own."""

from __future__ import annotations

import bisect
import itertools
import json
import logging
import math
import traceback
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

import prometheus_client
from prometheus_client import core, exposition
from prometheus_client.utils import floatToGoString

from app import clock, printable

METRICS_TYPE = exposition.CONTENT_TYPE_LATEST  # Media type of `Metrics.text`.

QUIET_SECONDS = 60.0  # Time for which a warning that strangers can cause is not repeated, however often they cause it.

_STEP_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600, 1800)
_HTTP_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60)
_MOST_OF_LIBRARIES = 10
_OWN = frozenset({"app", "control_room", "orchestrate"})
_USUAL = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}


class JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON: at, level, logger, message, and the fields of `extra`."""

    def __init__(self, mask: Callable[[Any], Any] = lambda value: value) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its newline; secrets in it are masked."""
        line: dict[str, Any] = {
            "at": clock.stamp(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info and record.exc_info[0] is not None:
            line["trace"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        plain = json.loads(json.dumps(line, default=str))
        return printable.as_json(json.dumps(self._mask(plain), ensure_ascii=False))


def write_logs(level: str, stream: TextIO, mask: Callable[[Any], Any] = lambda value: value) -> None:
    """Send all logs of the process to a stream as JSON lines, instead of to earlier handlers.

    Args:
        level: debug, info, warning or error.
        mask: Replaces secrets in a plain JSON value.
    """
    root = logging.getLogger()
    for earlier in list(root.handlers):
        root.removeHandler(earlier)
    root.addHandler(handler(stream, mask))
    root.setLevel(level.upper())


def handler(stream: TextIO, mask: Callable[[Any], Any]) -> logging.Handler:
    """Return a handler that writes JSON lines.

    Of libraries it only writes warnings, as their messages quote headers and addresses.
    """
    lines = logging.StreamHandler(stream)
    lines.setFormatter(JsonLines(mask))
    lines.addFilter(lambda record: record.levelno >= logging.WARNING or _is_own(record))
    lines.addFilter(Repeats(clock.SystemClock().monotonic, _MOST_OF_LIBRARIES).filter)
    return lines


class Repeats:
    """Limits repeated log lines; a line that passes reports how many were suppressed.

    Args:
        now: Returns seconds of a clock that never runs backwards.
        most: How often each line passes within `QUIET_SECONDS`.
    """

    def __init__(self, now: Callable[[], float], most: int = 1) -> None:
        self._now = now
        self._most = most
        self._seen: dict[Hashable, tuple[float, int]] = {}

    def left_out(self, what: Hashable) -> int | None:
        """Return how often this line was suppressed since it last passed; None: it is suppressed now, too."""
        began, count = self._seen.get(what, (-math.inf, 0))
        if self._now() - began >= QUIET_SECONDS:
            self._seen[what] = (self._now(), 1)
            return max(count - self._most, 0)
        self._seen[what] = (began, count + 1)
        return 0 if count < self._most else None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a library's record passes, by the place that wrote it: strangers can cause any number."""
        if _is_own(record):
            return True
        found = self.left_out((record.name, record.pathname, record.lineno))
        if found:
            record.left_out = found
        return found is not None


def _is_own(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] in _OWN


class _Timings:
    """A counter and a histogram of one kind of event: counted as plain numbers, and assembled when they are read.

    The library's own counters take ten times as long, and each step and request is counted.

    Args:
        counter: Name and help text.
        seconds: Name and help text of the histogram.
        labels: Labels of the counter; the histogram has all but the last.
    """

    def __init__(self, counter: tuple[str, str], seconds: tuple[str, str], labels: list[str], bounds: Sequence[float]):
        self._counter, self._seconds = counter, seconds
        self._labels = labels
        self._bounds = (*bounds, math.inf)
        self._found: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}

    def note(self, labels: tuple[str, ...], seconds: float) -> None:
        """Count an event with these labels and this duration."""
        found = self._found.get(labels)
        if found is None:
            found = self._found[labels] = [0] * len(self._bounds), [0.0]
        found[0][bisect.bisect_left(self._bounds, seconds)] += 1
        found[1][0] += seconds

    def collect(self) -> Iterable[prometheus_client.Metric]:
        """Return both metrics in the library's form."""
        counter = core.CounterMetricFamily(*self._counter, labels=self._labels)
        seconds = core.HistogramMetricFamily(*self._seconds, labels=self._labels[:-1])
        together: dict[tuple[str, ...], tuple[list[int], float]] = {}
        for labels, (counts, total) in self._found.items():
            counter.add_metric(labels, sum(counts))
            before = together.get(labels[:-1], ([0] * len(counts), 0.0))
            together[labels[:-1]] = [*map(sum, zip(counts, before[0], strict=True))], total[0] + before[1]
        for place, (counts, seconds_in_all) in together.items():
            sums = zip(map(floatToGoString, self._bounds), itertools.accumulate(counts), strict=True)
            seconds.add_metric(place, list(sums), seconds_in_all)
        return counter, seconds


class Metrics:
    """The counters and measurements of the service, for Prometheus."""

    def __init__(self) -> None:
        registry = prometheus_client.CollectorRegistry()
        self._registry = registry
        prometheus_client.ProcessCollector(registry=registry)
        self._runs = prometheus_client.Gauge(
            "control_room_runs", "Runs of the data directory by state.", ["state"], registry=registry
        )
        self._slots = prometheus_client.Gauge(
            "control_room_slots", "Runs that may execute at a time.", registry=registry
        )
        self._queued = prometheus_client.Gauge(
            "control_room_queue_length", "Runs that wait for a slot.", registry=registry
        )
        self._stalled = prometheus_client.Gauge(
            "control_room_stalled_steps", "Steps whose agent or program has been silent for long.", registry=registry
        )
        self._servers = prometheus_client.Gauge(
            "control_room_up",
            "Whether the store accepts writes and the Temporal server answers.",
            ["what"],
            registry=registry,
        )
        self._steps = _Timings(
            ("control_room_steps", "Tries of steps by operation and what came of them."),
            ("control_room_step_seconds", "Time that a try took."),
            ["kind", "status"],
            _STEP_BUCKETS,
        )
        self._requests = _Timings(
            ("control_room_http_requests", "Requests answered."),
            ("control_room_http_request_seconds", "Time until an answer began."),
            ["method", "route", "status"],
            _HTTP_BUCKETS,
        )
        registry.register(self._steps)
        registry.register(self._requests)

    def step(self, kind: str, status: str, seconds: float) -> None:
        """Count a try that was performed."""
        self._steps.note((kind, status), seconds)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request by its route's pattern, so that ids do not create further series."""
        self._requests.note((method, route, str(status)), seconds)

    def pool(self, *, slots: int, queued: int, stalled: int = 0) -> None:
        """Record the load of the pool."""
        self._stalled.set(stalled)
        self._slots.set(slots)
        self._queued.set(queued)

    def runs(self, by_state: Mapping[str, int]) -> None:
        """Record the number of runs in each state; omitted states keep their last number."""
        for state, count in by_state.items():
            self._runs.labels(state).set(count)

    def up(self, by_name: Mapping[str, bool]) -> None:
        """Record whether what the service needs works, by name."""
        for name, works in by_name.items():
            self._servers.labels(name).set(works)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return exposition.generate_latest(self._registry)
