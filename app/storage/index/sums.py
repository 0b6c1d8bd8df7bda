"""`run_sums.Sums` over the index, by SQL that both SQLite and Postgres execute, and over values in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from app import clock
from app.domain.records import rounded
from app.domain.usage_sums import UsageSum
from app.engine import run_sums, stores
from app.storage.index import index_port, reads, scopes

_AMOUNTS = (
    "COUNT(DISTINCT run_usage.run_id), SUM(run_usage.calls), SUM(run_usage.calls_silent), SUM(run_usage.input_tokens),"
    " SUM(run_usage.output_tokens), SUM(run_usage.cost_usd), SUM(run_usage.calls_without_price),"
    " SUM(run_usage.cost_estimated_usd)"
)
_SOURCE = "run_usage JOIN runs ON runs.run_id = run_usage.run_id"
_LABELS = "LEFT JOIN run_labels ON run_labels.run_id = runs.run_id AND run_labels.name = :label_key"
_NAMES: Mapping[str, str] = {
    "recipe": "runs.recipe_id",
    "agent": "run_usage.agent_id",
    "model": "run_usage.model",
    "label": "run_labels.value",
}


def totals(index: reads.Connection, since: run_sums.Since, aside: Sequence[str]) -> run_sums.Totals:
    """Return the totals; each count has an index that contains just the counted rows.

    Args:
        aside: Runs whose usage is left out.
    """
    known, scoped = {"failed": since.failed, "today": since.today}, list(scopes.of_runs(since.scope))

    def count(condition: str) -> int:
        given = {name: value for name, value in known.items() if f":{name}" in condition}
        where, values = reads.where([(condition, given), (reads.SHOWN, {}), *scoped])
        return int(index.rows(f"SELECT COUNT(*) FROM runs {where}", values)[0][0])

    conditions = [("run_usage.quarter >= :today", {"today": since.today}), *_without(aside), *scoped]
    return run_sums.Totals(
        by_status=reads.count_by_status(index, since.scope),
        parked=count("status = 'paused' AND error_code IS NOT NULL"),
        failed=count(reads.FAILED),
        created=count("created_at >= :today"),
        usage=_total(index, conditions),
    )


def usage(
    index: reads.Connection, query: run_sums.UsageQuery, aside: Sequence[str]
) -> tuple[run_sums.Sums, run_sums.UsageAmounts]:
    """Return sums by name, largest first, and the total, without the runs in `aside`."""
    conditions = [*reads.conditions_of(query.runs), *_without(aside)]
    if query.by == "day":
        return _by_day(index, query, conditions), _total(index, conditions)
    name, source = _NAMES[query.by], _SOURCE
    given: dict[str, Any] = {"most": run_sums.MOST_ROWS}
    if query.by == "label":
        source, given = f"{_SOURCE} {_LABELS}", given | {"label_key": query.label_key}
    where, values = reads.where(conditions)
    # By name last, so that equal sums have a fixed order.
    order = "ORDER BY COALESCE(SUM(run_usage.cost_usd), 0) DESC, SUM(run_usage.input_tokens) DESC, 1 LIMIT :most"
    sql = f"SELECT {name}, {_AMOUNTS} FROM {source} {where} GROUP BY {name} {order}"
    return {row[0] or None: _amounts(row[1:]) for row in index.rows(sql, values | given)}, _total(index, conditions)


def in_memory(
    found: Iterable[tuple[stores.RunSummary, Sequence[UsageSum]]], query: run_sums.UsageQuery
) -> tuple[run_sums.Sums, run_sums.UsageAmounts]:
    """Return the same for runs whose sums are in memory."""
    sums: run_sums.Sums = {}
    total = run_sums.UsageAmounts()
    for run, every in found:
        if not index_port.fits(run, query.runs, internal=True):
            continue
        named = sorted(((_name(run, part, query), part) for part in every), key=lambda pair: pair[0] or "")
        for name, group in groupby(named, key=lambda pair: pair[0]):
            sums = run_sums.merged(sums, {name: _added(part for _, part in group)})
        if every:
            total = total.plus(_added(every))
    return sums, total


async def with_live(
    index: index_port.Index, query: run_sums.UsageQuery, live: run_sums.Live
) -> tuple[run_sums.Sums, run_sums.UsageAmounts]:
    """Return sums in which runs that execute now count with their live usage instead of their rows."""
    found, total = await index.usage(query, tuple(live))
    rows = [(row.summary, live[row.summary.run_id]) for name in live if (row := await index.get_run(name))]
    more, added = in_memory(rows, query)
    return run_sums.merged(found, more), total.plus(added)


def since(found: Iterable[Sequence[UsageSum]], quarter: str) -> run_sums.UsageAmounts:
    """Return the usage of runs in memory since an instant."""
    total = run_sums.UsageAmounts()
    for parts in found:
        newer = [part for part in parts if part.quarter >= quarter]
        total = total.plus(_added(newer)) if newer else total
    return total


def _by_day(
    index: reads.Connection, query: run_sums.UsageQuery, conditions: Sequence[scopes.Condition]
) -> run_sums.Sums:
    # One range of the index for each day, so that the databases need no time zones.
    where, values = reads.where(conditions)
    first, last = index.rows(f"SELECT MIN(run_usage.quarter), MAX(run_usage.quarter) FROM {_SOURCE} {where}", values)[0]
    if first is None:
        return {}
    offset = timedelta(minutes=query.offset_minutes)
    sums: run_sums.Sums = {}
    for day in _days(first, last, offset):
        begin = day - offset
        bounds = {"begin": clock.stamp(begin), "end": clock.stamp(begin + timedelta(days=1))}
        span = ("run_usage.quarter >= :begin AND run_usage.quarter < :end", bounds)
        amounts = _total(index, [*conditions, span])
        if amounts.runs:
            sums[day.date().isoformat()] = amounts
    return sums


def _days(first: str, last: str, offset: timedelta) -> Iterable[datetime]:
    try:
        oldest, newest = (_midnight(clock.instant(text) + offset) for text in (first, last))
    except (ValueError, OverflowError):
        # A journal written by hand may contain any text as a time; the total includes it.
        return []
    count = min((newest - oldest).days + 1, run_sums.MOST_DAYS)
    return [newest - timedelta(days=number) for number in range(count)]


def _midnight(at: datetime) -> datetime:
    return datetime(at.year, at.month, at.day, tzinfo=UTC)


def _total(index: reads.Connection, conditions: Sequence[scopes.Condition]) -> run_sums.UsageAmounts:
    where, values = reads.where(conditions)
    return _amounts(index.rows(f"SELECT {_AMOUNTS} FROM {_SOURCE} {where}", values)[0])


def _amounts(row: Sequence[Any]) -> run_sums.UsageAmounts:
    runs, calls, silent, read, written, cost, unpriced, estimated = row
    return run_sums.UsageAmounts(
        runs=int(runs),
        calls=int(calls or 0),
        calls_silent=int(silent or 0),
        input_tokens=int(read or 0),
        output_tokens=int(written or 0),
        cost_usd=None if cost is None else rounded(float(cost)),
        calls_without_price=int(unpriced or 0),
        cost_estimated_usd=None if estimated is None else rounded(float(estimated)),
    )


def _without(aside: Sequence[str]) -> list[scopes.Condition]:
    named = {f"aside{number}": run_id for number, run_id in enumerate(aside)}
    names = ", ".join(f":{name}" for name in named)
    return [(f"run_usage.run_id NOT IN ({names})", named)] if named else []


def _added(parts: Iterable[UsageSum]) -> run_sums.UsageAmounts:
    total = run_sums.UsageAmounts(runs=1)
    for part in parts:
        total = total.plus(run_sums.UsageAmounts.of(part, 0))
    return total


def _name(run: stores.RunSummary, part: UsageSum, query: run_sums.UsageQuery) -> str | None:
    match query.by:
        case "recipe":
            name: str | None = run.recipe_id
        case "agent":
            name = part.agent_id
        case "model":
            name = part.model
        case "label":
            name = run.labels.get(query.label_key or "")
        case "day":
            try:
                local = clock.instant(part.quarter) + timedelta(minutes=query.offset_minutes)
            except (ValueError, OverflowError):
                return None
            name = local.date().isoformat()
    return name or None
