"""Voting: takes the votes of several keys at a gate."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from app import clock, errors, printable
from app.domain import approvals, authors, gates, keys, plain, runs
from app.engine import run_engine, stores
from app.services import faults

if TYPE_CHECKING:
    from app.domain import plans

NEEDS_KEYS = "approvals_need_keys"  # Code for approvals that only keys can give; other names are merely claimed.

FindPlan: TypeAlias = "Callable[[str], Awaitable[plans.Plan | None]]"
"""Returns a session plan; None: it does not exist."""


class Votes:
    """Takes and shows votes at gates.

    Args:
        plan: Returns a session plan as it is stored; None if it does not exist.
    """

    def __init__(self, store: stores.RunStore, engine: run_engine.RunEngine, plan: FindPlan) -> None:
        self._store = store
        self._engine = engine
        self._plan = plan

    async def shown(self, gate: gates.OpenGate, answer: dict[str, plain.Json]) -> approvals.ApprovalsShown | None:
        """Return the required approvals of a gate and its votes; None if one answer decides.

        Args:
            answer: The recorded answer; empty while the gate is open.
        """
        needed = gate.start.approvals
        if needed is None:
            return None
        # A decision by votes records them; one by default leaves those that were given before it in their own lines.
        recorded = answer.get("approvals")
        if isinstance(recorded, list):
            given = [approvals.Vote(**vote) for vote in recorded]
        else:
            given = list(await self._given(gate))
        return approvals.ApprovalsShown(needed=needed.count, not_starter=needed.not_starter, given=tuple(given))

    async def vote(self, gate: gates.OpenGate, answer: gates.Answer, at: str) -> gates.Answer | None:
        """Take a vote at a gate; return the complete answer, or None while other votes are missing.

        The completing vote is recorded only in the answer, so that no crash leaves a gate complete and open.

        Args:
            at: The present instant.

        Raises:
            errors.Denied: `approvals_need_keys`, `approver_started`.
            errors.Conflict: `already_voted`.
            errors.StorageFault: it could not be made durable.
        """
        needed, author = gate.start.approvals, answer.author
        if needed is None:
            return answer
        starters = await self._starters(gate.start) if needed.not_starter else ()
        _refuse_unfit(starters, author)
        assert author is not None
        own = approvals.Vote(decision=answer.decision, message=answer.message, author=author.to_json(), at=at)
        # One denial decides, no matter what other votes are.
        if answer.decision in gate.gate.denials:
            return dataclasses.replace(answer, votes=(*await self._given(gate), own))
        before = await self._given(gate)
        known = next((vote for vote in before if vote.name == author.name), None)
        if known is not None and known.decision != answer.decision:
            message = f"the key {author.name} has voted {known.decision} at this gate; a vote cannot be changed"
            raise errors.Conflict(message, code="already_voted", detail={"decision": known.decision})
        votes = before if known is not None else [*before, own]
        if known is None and approvals.agreeing(votes, answer.decision) < needed.count:
            await self._write(gate, answer)
            # Two keys may have voted at the same moment, each as the last but one.
            votes = await self._given(gate)
        done = approvals.agreeing(votes, answer.decision) >= needed.count
        return dataclasses.replace(answer, votes=tuple(votes)) if done else None

    async def _starters(self, start: runs.RunStart) -> Sequence[str]:
        """Return the names of the keys that started a run, the runs above it, or the plans of these."""
        found: list[authors.Author | None] = []
        run: runs.RunStart | stores.RunSummary = start
        with contextlib.suppress(errors.NotFound):
            while True:
                found.append(authors.named(run.started_by))
                # Runs below the task of a plan have its session.
                if run.started_by is None and clock.is_internal(run.session_id):
                    plan = await self._plan(run.session_id)
                    found.append(None if plan is None else authors.named(plan.started_by))
                if run.parent_run_id is None:
                    break
                run = await self._store.summary(run.parent_run_id)
        return [author.name for author in found if author is not None and author.via == "key" and author.name]

    async def _write(self, gate: gates.OpenGate, answer: gates.Answer) -> None:
        vote = run_engine.Vote(
            gate_id=gate.gate_id,
            decision=answer.decision,
            message=answer.message,
            shown_sha256=gate.shown_sha256,
        )
        with faults.as_errors():
            await self._engine.mark(gate.run_id, run_engine.Marks(vote=vote), answer.author)

    async def _given(self, gate: gates.OpenGate) -> Sequence[approvals.Vote]:
        return list((await self._store.read(gate.run_id)).decisions.votes.get(gate.gate_id, ()))


def lacking(start: runs.RunStart, approvers: Sequence[keys.Key]) -> errors.Flaw | None:
    """Return why the gates of a run could never be decided; None if they can.

    Args:
        approvers: Keys that may answer gates.
    """
    needed = start.approvals
    if needed is None:
        return None
    own, able = _own(start, needed), _able(start, needed, approvers)
    if able >= needed.count:
        return None
    there = f"there {'is' if able == 1 else 'are'} {able or 'none'}"
    beside = f" beside {own}, who starts it" if own else ""
    message = (
        f"its gates need {printable.counted(needed.count, 'key')} with the role approver, and {there}{beside};"
        " names that callers claim do not count: add keys with control-room keys add"
    )
    return errors.Flaw(path="$.approvals", code=NEEDS_KEYS, message=message)


async def refuse_unapprovable(start: runs.RunStart, approvers: Callable[[], Sequence[keys.Key]]) -> None:
    """Refuse a run whose gates could never be decided.

    Args:
        approvers: Returns the keys that may answer gates; it blocks.

    Raises:
        errors.Conflict: `approvals_need_keys`.
    """
    if start.approvals is None:
        return
    # In a command, no key can approve.
    able = await asyncio.to_thread(approvers) if start.owner == "service" else ()
    if (flaw := lacking(start, able)) is not None:
        count = _able(start, start.approvals, able)
        facts: dict[str, plain.Json] = {"needed": start.approvals.count, "approvers": count}
        raise errors.Conflict(flaw.message, code=NEEDS_KEYS, detail=facts)


def _own(start: runs.RunStart, needed: approvals.Approvals) -> str | None:
    """Return the name of the key that does not count, since it starts the run; None if there is none."""
    starter = authors.named(start.started_by)
    return starter.name if needed.not_starter and starter is not None and starter.via == "key" else None


def _able(start: runs.RunStart, needed: approvals.Approvals, approvers: Sequence[keys.Key]) -> int:
    """Return how many keys can decide at the gates of a run."""
    own = _own(start, needed)
    return sum(key.name != own and key.scope.covers(start.recipe_id, start.labels) for key in approvers)


def _refuse_unfit(starters: Sequence[str], author: authors.Author | None) -> None:
    if author is None or author.via != "key":
        message = "this gate is decided by keys; a token, a claimed name or this machine's user does not count"
        raise errors.Denied(message, code=NEEDS_KEYS)
    if author.name in starters:
        message = f"the key {author.name} has started this run, or the run or plan above it; others decide at its gates"
        raise errors.Denied(message, code="approver_started")
