"""Contests: decides which of several competing control lines are written."""

from __future__ import annotations

from collections.abc import Mapping

from app.domain import plain, states
from app.domain.decisions import DecisionKind, Decisions

DOUBTED = frozenset({DecisionKind.LABELLED, DecisionKind.LIMITED, DecisionKind.VOTED})
"""Lines that may concern an evicted or ended run, whose row is marked as doubtful first."""

CONTESTED = DOUBTED | {DecisionKind.CANCEL_REQUESTED, DecisionKind.ENDED, DecisionKind.RESUMED, DecisionKind.LATE}
"""Lines that are written one at a time, each judged by the earlier ones."""


def wins(decided: Decisions, kind: DecisionKind, facts: Mapping[str, plain.Json]) -> bool:
    """Return whether a contested line may be written after the earlier decisions."""
    match kind:
        case DecisionKind.CANCEL_REQUESTED:
            return decided.ended is None and decided.cancel_requested_at is None
        case DecisionKind.ENDED:
            cancelled = decided.cancel_requested_at is not None
            return decided.ended is None and (not cancelled or facts["status"] == states.RunState.CANCELLED)
        case DecisionKind.LIMITED:
            return decided.ended is None
    return True
