"""Limiting: a change of what an unfinished run may take, written whatever it is doing."""

from __future__ import annotations

from collections.abc import Callable

from app import errors
from app.domain import authors, decisions, events
from app.domain.limits import RunLimits
from app.engine import spending, stores


async def limit(
    log: stores.RunLog,
    limits: RunLimits,
    author: authors.Author | None,
    reach: Callable[[str], None],
    spends: spending.Spending | None,
) -> None:
    """Write down what a run may take from now on, and put it in force.

    Raises:
        errors.WrongState: it has ended, or will.
        errors.StorageFault: it could not be made durable.
    """
    found, run_id = log.loaded.decisions, log.loaded.start.run_id
    if found.ended or found.cancel_requested_at:
        raise errors.WrongState(f"the run {run_id} is {found.status} and cannot be limited any more")
    facts = {"limits": limits.to_json(), **authors.facts(author)}
    reach("pool.before_limit")
    try:
        await log.decide(decisions.DecisionKind.LIMITED, facts)
    except errors.StorageFault:
        # It may be the first write after a failed one.
        await log.heal()
        await log.decide(decisions.DecisionKind.LIMITED, facts)
    reach("pool.after_limit")
    if spends is not None:
        spends.limit(run_id, limits)
    shown = {"limits": facts["limits"], "author": authors.in_line(facts)}
    log.add_event(events.EventType.RUN_LIMITED, None, shown)
