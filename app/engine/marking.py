"""Marking: changes a run's labels, pin and limits, and records votes at its gates, in any state of the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from app import errors
from app.domain import authors, decisions, gates, plain, records, runs
from app.domain.limits import RunLimits
from app.engine import run_engine, spending, stores


async def mark(
    log: stores.RunLog,
    marks: run_engine.Marks,
    author: authors.Author | None,
    reach: Callable[[str], None],
    lines: Sequence[records.Record] | None = None,
) -> bool:
    """Record new labels, a new pin or a vote of a run, and return whether that changed anything.

    Args:
        lines: Present records of the run; None: those that it was opened with.

    Raises:
        errors.RequestInvalid: the run would have too many labels.
        errors.Conflict, errors.NotFound: `gate_decided`, `gate_not_found`: the vote comes too late.
        errors.StorageFault: the change could not be made durable.
    """
    if marks.vote is not None:
        _refuse_late(log, marks.vote.gate_id, log.loaded.records if lines is None else lines)
        return await _vote(log, marks.vote, author, reach)
    start = log.loaded.start
    changes: dict[str, plain.Json] = {
        name: text for name, text in marks.labels.items() if start.labels.get(name) != text
    }
    _refuse_too_many(start.overridden({"labels": changes}))
    facts: dict[str, plain.Json] = {"labels": changes} if changes else {}
    facts |= {} if marks.pinned in (None, start.pinned) else {"pinned": marks.pinned}
    if not facts:
        return False
    line = {**facts, **authors.facts(author)}
    await _decide(log, decisions.DecisionKind.LABELLED, line, reach, "labels")
    return True


async def limit(
    log: stores.RunLog,
    limits: RunLimits,
    author: authors.Author | None,
    reach: Callable[[str], None],
    spends: spending.Spending | None,
) -> None:
    """Record new limits of an unfinished run, and apply them.

    Raises:
        errors.WrongState: the run has ended or is being cancelled.
        errors.StorageFault: the change could not be made durable.
    """
    decided, run_id = log.loaded.decisions, log.loaded.start.run_id
    if decided.ended or decided.cancel_requested_at:
        raise run_engine.wrong_state(run_id, decided.status, "limit", run_engine.cancelling(decided))
    facts = {"limits": limits.to_json(), **authors.facts(author)}
    await _decide(log, decisions.DecisionKind.LIMITED, facts, reach, "limit")
    if spends is not None:
        spends.limit(run_id, limits)


async def _vote(
    log: stores.RunLog, vote: run_engine.Vote, author: authors.Author | None, reach: Callable[[str], None]
) -> bool:
    """Record the vote of a key, once for each key."""
    line = {**dataclasses.asdict(vote), **authors.facts(author)}
    name = None if author is None else author.name
    if any(earlier.name == name for earlier in log.loaded.decisions.votes.get(vote.gate_id, ())):
        return False
    await _decide(log, decisions.DecisionKind.VOTED, line, reach, "vote")
    return True


def _refuse_late(log: stores.RunLog, gate_id: str, lines: Sequence[records.Record]) -> None:
    living = (line for line in lines if line.position not in log.loaded.decisions.dead)
    if any((gates.answer_in(line) or {}).get("gate_id") == gate_id for line in living):
        raise errors.Conflict(f"the gate {gate_id} is already decided", code="gate_decided")
    if log.loaded.decisions.ended is not None:
        raise errors.NotFound(f"the gate {gate_id} ended with its run", code="gate_not_found")


async def _decide(
    log: stores.RunLog,
    kind: decisions.DecisionKind,
    facts: Mapping[str, plain.Json],
    reach: Callable[[str], None],
    point: str,
) -> None:
    reach(f"pool.before_{point}")
    try:
        await log.decide(kind, facts)
    except errors.StorageFault:
        # This may be the first write after a failed one.
        await log.heal()
        await log.decide(kind, facts)
    reach(f"pool.after_{point}")


def _refuse_too_many(start: runs.RunStart) -> None:
    if len(start.labels) > runs.LABELS:
        message = f"a run has at most {runs.LABELS} labels; this one would have {len(start.labels)}: remove others"
        flaw = errors.Flaw(path="$.labels", code="invalid", message=message)
        raise errors.RequestInvalid(message, flaws=[flaw])
