"""A run as values: its start, its transitions and its ending."""

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
ARTIFACTS = "artifacts"  # Folder in a run's own that its steps may use.
COMPLETED = "completed"  # Reason of a run that came to the end of its recipe.

CUT_OFF = "reply_cut_off"
"""Reason of a run that kept replies that reached their longest; also the code of a step that such a reply fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart(shapes.Shape):
    """What a run began with: start.json, written once. Everything a driver may read is here."""

    run_id: str  # Id of the run; the name of its folder.
    recipe_id: str  # Recipe it executes.
    dialect: str  # Language of the recipe.
    driver_version: int  # Version of the dialect's driver that began the run.
    created_at: str  # When it was accepted.
    recipe: Mapping[str, plain.Json] = shapes.shared()  # The expanded recipe.
    recipe_sha256: str  # Bare hash of the expanded recipe.
    frozen: Mapping[str, plain.Json] = shapes.shared(default_factory=dict)
    """What the dialect froze beside it: templates, agents with their roles, limits."""
    description: str = ""  # The task, as text.
    args: Mapping[str, plain.Json] = field(default_factory=dict)
    """Arguments, defaults filled in; `initial_args` in run.json."""
    options: Mapping[str, plain.Json] = field(default_factory=dict)
    """How the recipe's language is to go about it, beside the arguments: what its runs can be told of that kind."""
    folder: str | None = None
    """The run's own folder, as an absolute path; None where it was begun without one."""
    session_id: str = ""  # Work session that receipts belong to.
    session_plan_task_id: int | None = None  # Task of the plan that started it.
    started_by: authors.Shown | None = shapes.omitted()
    """Author of the request that started it; None where Control Room did, and in runs of earlier releases."""
    labels: Mapping[str, str] = field(default_factory=dict)  # Labels for finding it again.
    priority: int = 0  # -100 to 100; higher goes first.
    concurrency: Concurrency | None = shapes.omitted()
    """Key that limits how many runs of it are under way; None: it shares none."""
    limits: RunLimits = shapes.omitted(default=NO_LIMITS)  # What it and the runs that it starts may take.
    approvals: Approvals | None = shapes.omitted()  # What its gates need beside one answer; None: nothing.
    working_dir: str = "."  # Workspace, as an absolute path.
    exclusive_workspace: bool = False  # Whether it holds its workspace alone from start to end.
    idempotency_key: str | None = None  # Key under which a repeated request finds this run.
    request_sha256: str | None = None
    """Hash of the request, to distinguish a repetition from another request with the same key."""
    parent_run_id: str | None = None  # Run that started it.
    depth: int = 0  # Number of runs above it.
    owner: Literal["service", "process"] = "service"
    """Who continues it: the service, or the command line's process that began it."""
    data_directory_id: str | None = None  # Data directory it was begun in.
    begun_again: Mapping[str, int] = field(default_factory=dict)
    """Conversations that a person had begun again from the journal, by their ids, with how often that was ordered."""
    adopted: bool = False  # Whether start.json was made afterwards, from a folder written by hand.
    resumed: bool = False  # Whether the run was resumed after it had ended.
    pinned: bool = shapes.omitted(default=False)  # Whether retention keeps it whatever its age.

    forked_from: str | None = shapes.omitted()  # Run whose steps it took over; None: it began with none.
    up_to: int = shapes.omitted(default=0)  # Lines that it took over.
    source_hash: str | None = shapes.omitted()  # Bare hash of those lines as the source's journal holds them.
    id_root: str | None = shapes.omitted()
    """Run that a chain of forks began with: ids that drivers derive are made of its id."""
    root_created_at: str | None = shapes.omitted()  # When that run was accepted.
    replaced: Mapping[str, Mapping[str, plain.Json]] | None = shapes.omitted()
    """Fields of agent calls by step that a fork put in place of the recipe's."""

    @property
    def root_id(self) -> str:
        """Return the id that drivers put into prompts and names, the same for a run and its forks."""
        return self.id_root or self.run_id

    @property
    def root_at(self) -> str:
        """Return the instant that drivers put into prompts and names."""
        return self.root_created_at or self.created_at

    def conversation(self, agent_session_id: str) -> str:
        """Return the conversation in which the run speaks where its driver names one; a fork shares none."""
        if self.forked_from is None:
            return agent_session_id
        return plain.derived_id(f"conversation {agent_session_id} of the fork {self.run_id}")

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RunStart:
        """Read start.json; unknown fields of a later version are ignored.

        Raises:
            TypeError: a field without default is missing, or limits or a concurrency key are of the wrong kind.
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
        """Return the facts as later decisions left them: other args, a newer recipe, a pin.

        Args:
            overrides: Fields and their values; of `labels`, what changed, null for one that was removed.
        """
        if not overrides:
            return self
        changed = {**self.labels, **overrides.get("labels", {})}
        # None removes a label, so that a change can be written as one object.
        labels = {name: text for name, text in changed.items() if text is not None}
        return dataclasses.replace(self, **{**overrides, "labels": labels})


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded(shapes.Shape):
    """The newer run of a concurrency key whose policy cancelled a run."""

    run_id: shapes.RunId  # The newer run.
    key: str  # The concurrency key.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending(shapes.Shape):
    """How a run ended."""

    published_as: ClassVar[str] = "EndingShown"

    status: RunState = shapes.internal(default=RunState.DONE)  # `done`, `failed` or `cancelled`.
    reason: str = COMPLETED  # Stable name of why.
    partial: bool = False  # Whether the run continued after failures, or kept replies that were cut off.
    failed_steps: tuple[str, ...] = ()  # Keys of the failed steps after which the run continued.
    cut_off_steps: tuple[str, ...] = shapes.omitted(default=())
    """Keys of the steps whose replies were cut off, and kept."""
    missing_result: str | None = shapes.omitted()  # Variable that the recipe names as its result, if no step set it.
    superseded_by: Superseded | None = shapes.omitted()  # Run that cancelled it by the policy of its concurrency key.

    def with_cut_off(self, keys: tuple[str, ...]) -> Ending:
        """Return the ending of a run in which some replies that reached their longest were kept."""
        if not keys or self.status is not RunState.DONE:
            return self
        reason = CUT_OFF if self.reason == COMPLETED else self.reason
        return dataclasses.replace(self, reason=reason, partial=True, cut_off_steps=keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One move of a run, complete by construction; a store applies it only from an expected state."""

    run_id: str  # Run that moves.
    to: RunState  # State it moves to.
    since: frozenset[RunState]  # States it may move from.
    at: str  # When.
    error_code: str | None = None  # Code of the error of a failed or parked run.
    reason: str | None = None
    """Why a paused run rests; `denied` where a person's denial ended it, `partial` where it is done in part only."""
    facts: RunFacts | None = None  # What its journals add up to by now; None: what the row shows of it stays.

    @classmethod
    def begin(cls, run_id: str, at: str) -> Transition:
        """A process takes the run up; from running too, since a crash leaves it there."""
        return _transition(run_id, RunState.RUNNING, at, also=RunState.RUNNING)

    @classmethod
    def wait(cls, run_id: str, at: str) -> Transition:
        """Only gates are open."""
        return _transition(run_id, RunState.WAITING, at)

    @classmethod
    def pause(cls, run_id: str, at: str, error_code: str | None = None, reason: str | None = None) -> Transition:
        """A person stopped it, or a fault parked it."""
        return _transition(run_id, RunState.PAUSED, at, error_code=error_code, reason=reason or error_code)

    @classmethod
    def queue(cls, run_id: str, at: str) -> Transition:
        """A person resumed or unpaused it; from running too, since recovery queues what it finds there."""
        return _transition(run_id, RunState.PENDING, at, also=RunState.RUNNING)

    @classmethod
    def stand_aside(cls, run_id: str, at: str, reason: str) -> Transition:
        """It stays pending, since another run holds what it needs; from running too, where a crash left its row."""
        since = frozenset({RunState.PENDING, RunState.RUNNING})
        return cls(run_id=run_id, to=RunState.PENDING, since=since, at=at, reason=reason)

    @classmethod
    def end(
        cls, run_id: str, status: RunState, at: str, error_code: str | None = None, reason: str | None = None
    ) -> Transition:
        """Its `ended` line is on disk."""
        return _transition(run_id, status, at, error_code=error_code, reason=reason)


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
    """Return the conversation that a run begins after so many restarts: made of the run's id, in the form of a UUID."""
    return plain.derived_id(f"agent session {run_id} {restarts}")


def child_key(parent_run_id: str, key: str) -> str:
    """Return the idempotency key of the run that a step of another run starts."""
    return f"child:{parent_run_id}:{plain.sha256(key.encode())[:32]}"


def is_child(start: RunStart) -> bool:
    """Return whether a step of another run has started a run; its key means the same in every data directory."""
    return (start.idempotency_key or "").startswith(f"child:{start.parent_run_id}:")
