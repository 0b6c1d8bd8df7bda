"""Runs: a run's start, its transitions and its ending, as values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from app.domain import authors, plain, shapes
from app.domain.approvals import Approvals
from app.domain.concurrency import Concurrency
from app.domain.limits import NO_LIMITS, RunLimits
from app.domain.states import MOVES, RunState
from app.domain.usage_sums import RunFacts

LABELS = 32  # Most labels of a run.
ARTIFACTS = "artifacts"  # Folder within a run's own folder that its steps may use.
COMPLETED = "completed"  # Reason of a run that reached the end of its recipe.

CUT_OFF = "reply_cut_off"
"""Reason of a run that kept replies that reached the length limit; also the code of a step that such a reply fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart(shapes.Shape):
    """The facts that a run began with: start.json, written once. They are all that a driver may read."""

    run_id: str  # Id of the run, and the name of its folder.
    recipe_id: str  # Recipe of the run.
    dialect: str  # Language of the recipe.
    driver_version: int  # Version of the dialect's driver that began the run.
    created_at: str  # When it was accepted.
    recipe: Mapping[str, plain.Json] = shapes.shared()  # The expanded recipe.
    recipe_sha256: str  # Bare hash of the expanded recipe.
    frozen: Mapping[str, plain.Json] = shapes.shared(default_factory=dict)
    """Further data that the dialect froze: templates, agents with their roles, limits."""
    description: str = ""  # The task, as text.
    args: Mapping[str, plain.Json] = field(default_factory=dict)
    """Arguments, with defaults filled in; `initial_args` in run.json."""
    options: Mapping[str, plain.Json] = field(default_factory=dict)
    """Options of the recipe's language for the run, besides the arguments."""
    folder: str | None = None
    """The run's own folder, as an absolute path; None if it was begun without one."""
    session_id: str = ""  # Work session of its receipts.
    session_plan_task_id: int | None = None  # Task of the session plan that started it.
    started_by: authors.Shown | None = shapes.omitted()
    """Author of the request that started it; None if Control Room started it, and in runs of earlier releases."""
    labels: Mapping[str, str] = field(default_factory=dict)  # Labels by which it is found again.
    priority: int = 0  # -100 to 100; higher goes first.
    concurrency: Concurrency | None = shapes.omitted()
    """Key that limits how many runs of it are under way; None: no key."""
    limits: RunLimits = shapes.omitted(default=NO_LIMITS)  # Limits of the run and of the runs that it starts.
    approvals: Approvals | None = shapes.omitted()  # Approvals of its gates; None: one answer decides.
    working_dir: str = "."  # Workspace, as an absolute path.
    exclusive_workspace: bool = False  # Whether it holds its workspace alone from start to end.
    idempotency_key: str | None = None  # Key under which a repeated request finds this run.
    request_sha256: str | None = None
    """Hash of the request, which distinguishes a repetition from another request with the same key."""
    parent_run_id: str | None = None  # Run that started it.
    depth: int = 0  # Number of runs above it.
    owner: Literal["service", "process"] = "service"
    """Who continues it: the service, or the command-line process that began it."""
    data_directory_id: str | None = None  # Data directory in which it was begun.
    begun_again: Mapping[str, int] = field(default_factory=dict)
    """Conversations that a person had begun again from the journal, by id, with the number of such orders."""
    adopted: bool = False  # Whether start.json was created afterwards, for a folder written by hand.
    resumed: bool = False  # Whether the run was resumed after it had ended.
    pinned: bool = shapes.omitted(default=False)  # Whether retention keeps it at any age.

    forked_from: str | None = shapes.omitted()  # Run whose steps it took over; None: it took over none.
    up_to: int = shapes.omitted(default=0)  # Number of lines that it took over.
    source_hash: str | None = shapes.omitted()  # Bare hash of those lines in the source's journal.
    id_root: str | None = shapes.omitted()
    """First run of a chain of forks: ids that drivers derive are based on its id."""
    root_created_at: str | None = shapes.omitted()  # When that run was accepted.
    replaced: Mapping[str, Mapping[str, plain.Json]] | None = shapes.omitted()
    """Fields of agent calls, by step, with which a fork replaced those of the recipe."""

    @property
    def root_id(self) -> str:
        """Return the id that drivers use in prompts and names, the same for a run and its forks."""
        return self.id_root or self.run_id

    @property
    def root_at(self) -> str:
        """Return the instant that drivers use in prompts and names."""
        return self.root_created_at or self.created_at

    def conversation(self, agent_session_id: str) -> str:
        """Return the conversation that the run uses where its driver names this one; a fork does not share any."""
        if self.forked_from is None:
            return agent_session_id
        return plain.derived_id(f"conversation {agent_session_id} of the fork {self.run_id}")

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RunStart:
        """Read start.json; unknown fields of a later version are ignored.

        Raises:
            TypeError: a field without default is missing, or limits or a concurrency key have the wrong type.
        """
        known = {item.name for item in dataclasses.fields(cls)}
        facts = {name: item for name, item in value.items() if name in known}
        if "limits" in facts:
            facts["limits"] = RunLimits.from_json(facts["limits"])
        if facts.get("approvals") is not None:
            facts["approvals"] = Approvals.from_json(facts["approvals"])
        if facts.get("concurrency") is not None:
            facts["concurrency"] = Concurrency.from_json(facts["concurrency"])
        return cls(**facts)

    def overridden(self, overrides: Mapping[str, Any]) -> RunStart:
        """Return the facts after later decisions: other args, a newer recipe, a pin.

        Args:
            overrides: Fields and their values; for `labels`, the changes, with null for a removed label.
        """
        if not overrides:
            return self
        changed = {**self.labels, **overrides.get("labels", {})}
        # None removes a label, so a change can be written as one object.
        labels = {name: text for name, text in changed.items() if text is not None}
        return dataclasses.replace(self, **{**overrides, "labels": labels})


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded(shapes.Shape):
    """The newer run of a concurrency key whose policy cancelled a run."""

    run_id: shapes.RunId  # The newer run.
    key: str  # The concurrency key.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending(shapes.Shape):
    """The ending of a run."""

    published_as: ClassVar[str] = "EndingShown"

    status: RunState = shapes.internal(default=RunState.DONE)  # `done`, `failed` or `cancelled`.
    reason: str = COMPLETED  # Stable code of the reason.
    partial: bool = False  # Whether the run continued after failures, or kept cut-off replies.
    failed_steps: tuple[str, ...] = ()
    """Keys of the failed steps after which the run continued; of a failed run, of the steps that a resume repeats."""
    cut_off_steps: tuple[str, ...] = shapes.omitted(default=())
    """Keys of the steps whose replies were cut off, and kept."""
    missing_result: str | None = shapes.omitted()  # Variable that the recipe names as its result, if no step set it.
    superseded_by: Superseded | None = shapes.omitted()  # Run that cancelled it by the policy of its concurrency key.

    def with_cut_off(self, keys: tuple[str, ...]) -> Ending:
        """Return the ending of a run that kept some replies that reached the length limit."""
        if not keys or self.status is not RunState.DONE:
            return self
        reason = CUT_OFF if self.reason == COMPLETED else self.reason
        return dataclasses.replace(self, reason=reason, partial=True, cut_off_steps=keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One transition of a run, complete by construction; a store applies it only from an expected state."""

    run_id: str  # Run whose state changes.
    to: RunState  # The new state.
    since: frozenset[RunState]  # States from which the transition is possible.
    at: str  # When it happens.
    error_code: str | None = None  # Code of the error of a failed or parked run.
    reason: str | None = None
    """Why a paused run rests; `denied` if a person's denial ended it, `partial` if it is only partly done."""
    facts: RunFacts | None = None  # Present sums of its journal; None: those of the row stay.

    @classmethod
    def begin(cls, run_id: str, at: str) -> Transition:
        """Return the transition of a run that a process takes up; also from running, since a crash leaves it there."""
        return _transition(run_id, RunState.RUNNING, at, also=RunState.RUNNING)

    @classmethod
    def wait(cls, run_id: str, at: str) -> Transition:
        """Return the transition of a run whose open steps only wait, at least one for an input."""
        return _transition(run_id, RunState.WAITING, at)

    @classmethod
    def pause(cls, run_id: str, at: str, error_code: str | None = None, reason: str | None = None) -> Transition:
        """Return the transition of a run that a person stopped or a fault parked."""
        return _transition(run_id, RunState.PAUSED, at, error_code=error_code, reason=reason or error_code)

    @classmethod
    def queue(cls, run_id: str, at: str) -> Transition:
        """Return the transition of a run that a person resumed or unpaused; also from running, for recovered runs."""
        return _transition(run_id, RunState.PENDING, at, also=RunState.RUNNING)

    @classmethod
    def stand_aside(cls, run_id: str, at: str, reason: str) -> Transition:
        """Return the transition of a run that stays pending, as another run holds what it needs; also from running."""
        since = frozenset({RunState.PENDING, RunState.RUNNING})
        return cls(run_id=run_id, to=RunState.PENDING, since=since, at=at, reason=reason)

    @classmethod
    def end(
        cls, run_id: str, status: RunState, at: str, error_code: str | None = None, reason: str | None = None
    ) -> Transition:
        """Return the transition of a run whose `ended` line is on disk."""
        return _transition(run_id, status, at, error_code=error_code, reason=reason)

    def joined(self, before: Transition) -> Transition:
        """Return this transition and the one before it as one, possible from every state from which either was."""
        return dataclasses.replace(self, since=before.since | self.since, facts=self.facts or before.facts)


def _transition(
    run_id: str,
    to: RunState,
    at: str,
    *,
    also: RunState | None = None,
    error_code: str | None = None,
    reason: str | None = None,
) -> Transition:
    since = _SINCE[to] if also is None else _SINCE[to] | {also}
    return Transition(run_id=run_id, to=to, since=since, at=at, error_code=error_code, reason=reason)


_SINCE = {to: frozenset(state for state, targets in MOVES.items() if to in targets) for to in RunState}


def agent_session_id(run_id: str, restarts: int) -> str:
    """Return the conversation that a run begins after this many restarts: derived from the run's id, as a UUID."""
    return plain.derived_id(f"agent session {run_id} {restarts}")


def child_key(parent_run_id: str, key: str, again: int = 0) -> str:
    """Return the idempotency key of the run that a step of another run starts.

    Args:
        again: Number of resumes that had the step performed once more after its run was done.
    """
    return f"{child_keys(parent_run_id)}{plain.sha256(key.encode())[:32]}{f':{again}' if again else ''}"


def child_keys(parent_run_id: str) -> str:
    """Return the beginning of the idempotency keys of the runs that the steps of a run start."""
    return f"child:{parent_run_id}:"


def is_child(start: RunStart) -> bool:
    """Return whether a step of another run has started a run; its key has the same meaning in every data directory."""
    return (start.idempotency_key or "").startswith(child_keys(start.parent_run_id or ""))
