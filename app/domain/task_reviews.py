"""Task reviews: verdicts of the chief or a person on finished tasks, and plan changes that the chief proposes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from app.domain import plain, shapes

ON, OFF = "on", "off"  # Whether definitions of done in words are reviewed.
BY_PERSON = "person"  # Who decided: a person, at a gate; otherwise the chief.


class ReviewState(StrEnum):
    """State of a task's review."""

    PENDING = "pending"  # A person has retried the task; its next review starts.
    RUNNING = "running"  # Its run is accepted and has not ended.
    WAITING = "waiting"  # A gate of its run asks a person.
    DONE = "done"  # It has a verdict. Final, unless the verdict is `not_met` and the task is retried.
    FAILED = "failed"
    """Its run failed, was cancelled or deleted, or could not be started; a retry of the task starts another review."""


REVIEW_MOVES: Mapping[ReviewState, frozenset[ReviewState]] = {
    ReviewState.PENDING: frozenset({ReviewState.RUNNING, ReviewState.FAILED}),
    ReviewState.RUNNING: frozenset({ReviewState.WAITING, ReviewState.DONE, ReviewState.FAILED}),
    ReviewState.WAITING: frozenset({ReviewState.RUNNING, ReviewState.DONE, ReviewState.FAILED}),
    ReviewState.DONE: frozenset({ReviewState.PENDING}),
    ReviewState.FAILED: frozenset({ReviewState.RUNNING, ReviewState.WAITING, ReviewState.PENDING}),
}
"""Every move a review can make; `docs/reference/states.md` draws it."""


class Verdict(StrEnum):
    """Result of a review."""

    MET = "met"  # The task is done.
    NOT_MET = "not_met"  # The task is not done, and fails.
    UNSURE = "unsure"  # The chief is unsure, so a person is asked.


class ProposalState(StrEnum):
    """State of a proposed change."""

    OPEN = "open"  # A person accepts or dismisses it.
    ACCEPTED = "accepted"  # A person accepted it, and the plan was changed.
    DISMISSED = "dismissed"  # A person dismissed it.
    REFUSED = "refused"  # The change cannot be made, for the reason in `problem`.


class ProposalKind(StrEnum):
    """Kind of a proposed change."""

    ADD_TASK = "add_task"  # A further task.
    EDIT_TASK = "edit_task"  # Other fields of a task that has not begun, or has failed.
    REMOVE_TASK = "remove_task"  # The removal of a task.


@dataclass(frozen=True, slots=True, kw_only=True)
class Review(shapes.Shape):
    """The review of a task's definition of done in words."""

    published_as: ClassVar[str] = "ReviewShown"

    status: ReviewState  # State of the review.
    number: int = 1  # Number of the review of the task's present run, from 1.
    run_id: str | None = None  # Run of the review; None before it starts.
    gate_id: str | None = None  # Gate at which a person is asked, while it is open.
    verdict: Verdict | None = None  # `met` or `not_met`; None before the decision.
    by: str | None = None  # Who decided: `chief` or `person`.
    why: str | None = None  # Reason, in one sentence or in the words of the person.
    evidence: str | None = None  # The chief's line of evidence, which was verified.
    usage: Mapping[str, plain.Json] | None = None
    """Cost of the review: `{input_tokens, output_tokens, cost_usd}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewer(shapes.Shape):
    """Who will review the tasks of a plan, according to the present configuration."""

    published_as: ClassVar[str] = "ReviewerShown"

    by: Annotated[str, Literal["chief", "person"]]
    """`chief`, or `person`: a gate opens after each of the tasks."""
    agent_id: str | None = None  # Agent that fills the role of the chief.
    why: str | None = None  # Why a person is asked.
    tasks: tuple[int, ...] = ()  # Tasks whose definition of done is in words.


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal(shapes.Shape):
    """A change of the plan that the chief proposes after a review; a person makes it, or dismisses it."""

    published_as: ClassVar[str] = "ProposalShown"

    id: int  # Number within the plan, from 1.
    after_task: int  # Task after whose review it was proposed.
    kind: Annotated[str, ProposalKind] | None = None
    """`add_task`, `edit_task` or `remove_task`; None: the chief named another kind, and `problem` says which."""
    task: int | None = None  # Task that is to be edited or removed.
    fields: Mapping[str, plain.Json] = field(default_factory=dict)
    """Fields of the task that is to be added or edited: `description`, `args`, `deps`, `dod`, `scoping_question`."""
    why: str = ""  # Reason, in the chief's words.
    status: ProposalState = ProposalState.OPEN  # State of the proposal.
    problem: str | None = None  # Why it was refused.


def after_retry(review: Review | None) -> Review | None:
    """Return the review for which a retried task waits."""
    return None if review is None else Review(status=ReviewState.PENDING, number=review.number + 1)


def with_proposal(known: tuple[Proposal, ...], changed: Proposal) -> tuple[Proposal, ...]:
    """Return proposals with a changed one in place of that with the same number."""
    return tuple(changed if each.id == changed.id else each for each in known)


def numbered(known: tuple[Proposal, ...], new: tuple[Proposal, ...], most: int) -> tuple[Proposal, ...]:
    """Return proposals followed by new ones with the next numbers; if there are too many, decided ones are omitted."""
    first = max((each.id for each in known), default=0) + 1
    found = [*known, *(dataclasses.replace(each, id=first + at) for at, each in enumerate(new))]
    surplus = len(found) - most
    decided = [each.id for each in known if each.status is not ProposalState.OPEN][: max(surplus, 0)]
    return tuple(each for each in found if each.id not in decided)[:most]
