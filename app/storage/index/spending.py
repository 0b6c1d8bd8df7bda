"""Spending of runs, from the index: sums of the ended runs by period, and of each unfinished run separately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.domain import states
from app.domain.usage_sums import UsageSum, merged
from app.engine import spending, stores
from app.storage.index import index_port, reads, rows

_AMOUNTS = rows.SUM[3:]
_FINISHED = ", ".join(f"'{state.value}'" for state in states.RunState if state.finished)
_TREE = (
    "WITH RECURSIVE tree(run_id) AS (SELECT runs.run_id FROM runs {where} UNION SELECT runs.run_id"
    " FROM runs JOIN tree ON runs.parent_run_id = tree.run_id) "
)
# One statement, so that a run that ends meanwhile is counted exactly once.
_SPENT = (
    f"SELECT CASE WHEN runs.status IN ({_FINISHED}) THEN NULL ELSE runs.run_id END AS open_run, run_usage.quarter,"  # noqa: S608 - names of this module
    f" {', '.join(f'SUM(run_usage.{name})' for name in _AMOUNTS)}"
    " FROM runs LEFT JOIN run_usage ON run_usage.run_id = runs.run_id"
)


def spent(index: reads.Connection, query: spending.SpentQuery, aside: Sequence[str]) -> spending.Spent:
    """Return the amounts that runs spent, without the runs in `aside`."""
    given: dict[str, Any] = {f"aside{number}": run_id for number, run_id in enumerate(aside)}
    left_out = f"runs.run_id NOT IN ({', '.join(f':{name}' for name in given)})" if aside else "TRUE"
    since = "" if query.since is None else " AND run_usage.quarter >= :since"
    given |= {} if query.since is None else {"since": query.since}
    filters = list(reads.conditions_of(query.runs))
    where, values = reads.where(filters)
    # A run's budget covers its descendants, too.
    tree, below = (_TREE.format(where=where), "runs.run_id IN (SELECT run_id FROM tree)") if filters else ("", "TRUE")
    given |= values
    sql = f"{tree}{_SPENT}{since} WHERE {below} AND {left_out} GROUP BY 1, 2"
    found: dict[str | None, list[UsageSum]] = {}
    for row in index.rows(sql, given):
        parts = found.setdefault(row[0], [])
        if row[1] is not None:
            parts.append(_part(row[1], row[2:]))
    finished = tuple(found.pop(None, ()))
    return spending.Spent(finished=finished, unfinished={str(run): tuple(parts) for run, parts in found.items()})


def in_memory(
    found: Iterable[tuple[stores.RunSummary, Sequence[UsageSum]]], query: spending.SpentQuery
) -> spending.Spent:
    """Return the same for runs whose sums are in memory."""
    known = {run.run_id: (run, parts) for run, parts in found}
    finished: list[UsageSum] = []
    unfinished: dict[str, tuple[UsageSum, ...]] = {}
    for run_id, (run, parts) in known.items():
        if not _fits(known, run, query.runs):
            continue
        newer = tuple(part for part in parts if query.since is None or part.quarter >= query.since)
        if states.RunState(run.status).finished:
            finished += newer
        else:
            unfinished[run_id] = newer
    return spending.Spent(finished=merged(finished), unfinished=unfinished)


def added(one: spending.Spent, other: spending.Spent) -> spending.Spent:
    """Return the sum of the spending of different runs."""
    return spending.Spent(
        finished=merged((*one.finished, *other.finished)), unfinished={**one.unfinished, **other.unfinished}
    )


def _fits(known: Mapping[str, tuple[stores.RunSummary, Any]], run: stores.RunSummary, query: stores.RunQuery) -> bool:
    seen: set[str] = set()
    while not index_port.fits(run, query, internal=True):
        seen.add(run.run_id)
        parent = run.parent_run_id
        if parent is None or parent not in known or parent in seen:
            return False
        run = known[parent][0]
    return True


def _part(quarter: str, amounts: Sequence[Any]) -> UsageSum:
    named: dict[str, Any] = dict(zip(_AMOUNTS, amounts, strict=True))
    for name, value in named.items():
        if name in ("cost_usd", "cost_estimated_usd"):
            named[name] = None if value is None else float(value)
        else:
            named[name] = float(value or 0) if name == "cost_reserved_usd" else int(value or 0)
    return UsageSum(quarter=quarter, agent_id="", model="", **named)
