"""Columns: the table cells of gates and runs, and the choice of columns for the width of a terminal."""

# Texts of runs and agents are on one line here, without characters that control a terminal.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app import clock, printable
from app.cli import formats

Row = Mapping[str, Any]

_LONGEST_CELL = 400
_GAP = 2
_LEAST = 8
_UNITS = (("d", 86_400), ("h", 3600), ("m", 60))
_THOUSANDS = ((1_000_000, "M"), (1000, "k"))

STATES = {
    "pending": "○",
    "running": "●",
    "waiting": "?",
    "paused": "‖",
    "done": "✓",
    "failed": "✗",
    "cancelled": "–",
}
"""Sign of each state of a run, shown beside the word."""

LIVE = ("running", "waiting", "paused", "pending")
"""States of unfinished runs, in the order of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    name: str  # Its heading.
    width: int  # Width in characters.
    show: Callable[[Row, datetime], str]  # Returns the text of a cell.
    right: bool = False  # Whether the text is right-aligned.
    grows: bool = False
    """Whether it takes the remaining width; if no chosen column grows, the last one does."""


GATES = (
    Column(name="waits", width=5, show=lambda gate, now: age(gate.get("asked_at"), now), right=True),
    Column(name="question", width=24, show=lambda gate, now: line(gate.get("prompt")), grows=True),
    Column(name="recipe", width=20, show=lambda gate, now: line(gate.get("recipe_id"))),
    Column(name="step", width=16, show=lambda gate, now: line(gate.get("key"))),
    Column(name="options", width=16, show=lambda gate, now: line(" / ".join(map(str, gate.get("options") or ())))),
    Column(name="run", width=22, show=lambda gate, now: line(gate.get("run_id"))),
)
"""Columns of open gates; the first ones are shown even in the narrowest terminal."""

RUNS = (
    Column(name="status", width=11, show=lambda run, now: f"{STATES.get(run['status'], ' ')} {line(run['status'])}"),
    Column(
        name="task", width=18, show=lambda run, now: line(run.get("description") or run.get("recipe_id")), grows=True
    ),
    Column(name="steps", width=10, show=lambda run, now: progress(run), right=True),
    Column(name="cost", width=8, show=lambda run, now: money((run.get("usage") or {}).get("cost_usd")), right=True),
    Column(name="duration", width=8, show=lambda run, now: _duration(run, now), right=True),
    Column(name="tokens", width=7, show=lambda run, now: tokens(run.get("usage") or {}), right=True),
    Column(name="now", width=20, show=lambda run, now: _now(run)),
    Column(name="recipe", width=20, show=lambda run, now: line(run.get("recipe_id"))),
    Column(name="quiet", width=5, show=lambda run, now: _quiet(run, now), right=True),
    Column(name="run", width=22, show=lambda run, now: line(run.get("run_id"))),
)
"""Columns of runs, in the same way."""


def fitting(columns: Sequence[Column], width: int) -> list[tuple[Column, int]]:
    """Return as many of the first columns as fit, at least two, each with its width."""
    taken = [sum(each.width + _GAP for each in columns[: count + 1]) for count in range(len(columns))]
    count = max(2, sum(each <= width for each in taken))
    grows = next((place for place, column in enumerate(columns[:count]) if column.grows), count - 1)
    # In the narrowest terminal, a growing column becomes narrower instead.
    rest = max(width - taken[count - 1], _LEAST - columns[grows].width)
    return [(column, column.width + rest * (place == grows)) for place, column in enumerate(columns[:count])]


def in_order(runs: Sequence[Row]) -> list[Row]:
    """Return runs in the order of the table: unfinished ones first, each state newest first."""
    live = [run for state in LIVE for run in runs if run["status"] == state]
    return [*live, *(run for run in runs if run["status"] not in LIVE)]


def line(text: object) -> str:
    """Return a text on one line, without characters that control a terminal."""
    shown = "" if text is None else str(text)[:_LONGEST_CELL]
    return " ".join(printable.one_line(shown).split())


def age(instant: str | None, now: datetime) -> str:
    """Return the time since an instant."""
    return "" if not instant else seconds((now - clock.instant(instant)).total_seconds())


def seconds(count: float) -> str:
    """Return a duration in its largest unit."""
    whole = max(0, int(count))
    return next((f"{whole // size}{unit}" for unit, size in _UNITS if whole >= size), f"{whole}s")


def money(amount: float | None) -> str:
    """Return an amount in dollars; a dash if no price was reported."""
    return "-" if amount is None else formats.money(amount)


def tokens(usage: Row) -> str:
    """Return the tokens of a call or a run, read and written together; a dash if none were reported."""
    counts = [usage.get("input_tokens"), usage.get("output_tokens")]
    return "-" if counts == [None, None] else short(sum(count or 0 for count in counts))


def short(count: int) -> str:
    """Return a count with at most four digits."""
    return next((f"{count / size:.1f}{unit}" for size, unit in _THOUSANDS if count >= size), str(count))


def summary(stats: Row, gates: Sequence[Row], runs: Sequence[Row]) -> str:
    """Return the summary line: what waits, what runs, and what it cost."""
    if not stats:
        running = sum(run["status"] == "running" for run in runs)
        return f"waiting: {printable.counted(len(gates), 'gate')} · running: {running}"
    return _summary(stats)


def detail(run: Row) -> str:
    """Return a run as text, with its steps."""
    return printable.visible(formats.run(run))


def _summary(stats: Row) -> str:
    runs, waits, today, pool = (stats.get(name) or {} for name in ("runs", "waits", "today", "pool"))
    kinds = (("gates", "gate"), ("questions", "plan question"), ("parked", "parked run"))
    waiting = [printable.counted(waits.get(name, 0), word) for name, word in kinds if waits.get(name)]
    failed = (stats.get("failed") or {}).get("count", 0)
    parts = [
        f"waiting: {', '.join(waiting) or 'nothing'}",
        f"running: {runs.get('running', 0)} of {pool.get('slots', '?')}, {pool.get('queued', 0)} queued",
        f"today: {_spent(today)}, {tokens(today)} tokens",
    ]
    parts += [f"failed since yesterday: {failed}"] if failed else []
    parts += ["DISK FULL"] if (stats.get("disk") or {}).get("is_full") else []
    return " · ".join(parts)


def _spent(sums: Row) -> str:
    kinds = (("calls_without_price", "without a price"), ("calls_silent", "reported nothing"))
    unpriced = [f"{printable.counted(sums[name], 'call')} {what}" for name, what in kinds if sums.get(name)]
    if not unpriced:
        return money(sums.get("cost_usd") or 0)
    return f"{money(sums.get('cost_usd'))} ({', '.join(unpriced)})"


def progress(run: Row) -> str:
    """Return the numbers of finished and of all steps of a run."""
    done, total = run.get("current_step_index"), run.get("total_steps")
    return "" if done is None else f"{done}/{'?' if total is None else total}{formats.last_gate(run)}"


def _duration(run: Row, now: datetime) -> str:
    if run.get("duration_ms") is not None:
        return seconds(run["duration_ms"] / 1000)
    ended = run.get("completed_at")
    return age(run.get("started_at"), clock.instant(ended) if ended else now)


def _now(run: Row) -> str:
    """Return the open step of a run, or why it stopped."""
    code = run.get("reason") or run.get("error_code") or ""
    return line((run.get("live_step") or {}).get("key") or code.replace("_", " "))


def _quiet(run: Row, now: datetime) -> str:
    """Return how long the running step has been silent."""
    step = (run["status"] == "running" and run.get("live_step")) or {}
    return age(step.get("output_at") or step.get("started_at"), now)
