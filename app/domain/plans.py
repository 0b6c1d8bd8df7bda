"""Session plans: tasks and their dependencies, each plan one JSON file (execution-modes, appendix G)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from app.domain import authors, plain, shapes, task_reviews
from app.domain.access import Scope
from app.domain.records import Failure

BY_CHIEF = "chief"  # Creator of a plan, or author of a question: an agent.
BY_USER = "user"  # Creator of a plan, or author of a question: a person or another service.
BY_SYSTEM = "system"  # Author of a question: Control Room itself, because a task cannot be started in its present form.
CHANGED = "plan_changed"  # Code of the refusal of a change, because the file has changed since.
DAMAGED = "plan_damaged"  # Code of a file that cannot be read as a plan.

SessionId = Annotated[str, shapes.Keywords({"examples": ["sp_5h2m9q0x7c"]})]
"""Id of a plan and of its work session."""

SHOWN_CHARACTERS = 1000  # Most characters of an intent in lists.


class PlanState(StrEnum):
    """State of a session plan."""

    DRAFT = "draft"
    """Created, or being created by the chief, and not approved yet.

    A person approves it; if the chief makes no plan, it fails. A crash here loses nothing: the chief's run continues,
    and the plan uses its result.
    """
    APPROVED = "approved"  # Approved; a person starts it. A crash here changes nothing.
    RUNNING = "running"
    """Its tasks are started as soon as possible; it also stays running while only an answer is missing.

    A person pauses it; it is done or failed when no task is left that could continue. A crash here leaves it running:
    the next start continues it.
    """
    PAUSED = "paused"
    """No further task is started; running tasks continue. A person resumes it. A crash here changes nothing."""
    DONE = "done"  # Every task is done. A further task makes the plan paused.
    FAILED = "failed"
    """A task has failed and no other can continue, or the chief made no plan.

    A person moves it out: by a retry, by force, or by a start once a task can continue. It is done when all remaining
    tasks are done. A crash here changes nothing.
    """


class TaskState(StrEnum):
    """State of a task of a session plan (execution-modes, appendix G, task states)."""

    PENDING = "pending"
    """Ready to run: all its dependencies are done, or a person has forced it.

    It is started as soon as its plan runs and has room. A crash here changes nothing.
    """
    BLOCKED = "blocked"
    """One of its dependencies is not done.

    It becomes pending when all of them are done, or when a person forces it. A crash here changes nothing.
    """
    NEEDS_SCOPING = "needs_scoping"
    """A question must be answered before it is clear what to execute.

    A person answers it. A crash here changes nothing.
    """
    RUNNING = "running"
    """Its run is accepted, or about to be accepted; or the run is done and its review has no verdict yet.

    Its run, by ending, or its review moves it out. A crash here loses nothing: the same runs are found by their keys.
    """
    DONE = "done"  # Its run is done and has passed its definition of done. Final.
    FAILED = "failed"
    """Its run failed, was cancelled or deleted, or could not be started, or the task is not done; `error` says why.

    A person moves it out, by a retry, or by letting its run continue. A crash here changes nothing.
    """


PLAN_MOVES: Mapping[PlanState, frozenset[PlanState]] = {
    PlanState.DRAFT: frozenset({PlanState.APPROVED, PlanState.FAILED}),
    PlanState.APPROVED: frozenset({PlanState.RUNNING}),
    PlanState.RUNNING: frozenset({PlanState.PAUSED, PlanState.DONE, PlanState.FAILED}),
    PlanState.PAUSED: frozenset({PlanState.RUNNING}),
    PlanState.DONE: frozenset({PlanState.PAUSED, PlanState.RUNNING}),
    PlanState.FAILED: frozenset({PlanState.RUNNING, PlanState.DONE, PlanState.DRAFT}),
}
"""Every move of a plan; `docs/reference/states.md` draws them."""

TASK_MOVES: Mapping[TaskState, frozenset[TaskState]] = {
    TaskState.PENDING: frozenset({TaskState.RUNNING, TaskState.BLOCKED, TaskState.NEEDS_SCOPING}),
    TaskState.BLOCKED: frozenset({TaskState.PENDING, TaskState.NEEDS_SCOPING}),
    TaskState.NEEDS_SCOPING: frozenset({TaskState.PENDING, TaskState.BLOCKED}),
    TaskState.RUNNING: frozenset({TaskState.DONE, TaskState.FAILED}),
    TaskState.FAILED: frozenset(
        {TaskState.PENDING, TaskState.BLOCKED, TaskState.NEEDS_SCOPING, TaskState.RUNNING, TaskState.DONE}
    ),
    TaskState.DONE: frozenset(),
}
"""Every move of a task; `docs/reference/states.md` draws them."""


class _Kept(shapes.Shape):
    """A shape in a file that people may edit; fields that a person added to the file are kept."""

    __slots__ = ()

    other: Mapping[str, plain.Json]

    def to_json(self) -> dict[str, plain.Json]:
        """Return the fields in the form of the file: Control Room's own first, in the order of their declaration."""
        return {
            **(own := super().to_json()),
            **{name: each for name, each in plain.plain(self.other).items() if name not in own},
        }


@shapes.open_ended
@dataclass(frozen=True, slots=True, kw_only=True)
class Scoping(shapes.Shape):
    """An earlier question about a task, with its answer."""

    published_as: ClassVar[str] = "ScopingShown"

    question: str  # The question.
    answer: str  # The answer.
    asked_by: str | None = None  # Author of the question: `chief`, `user` or `system`; None: not recorded.


@shapes.open_ended
@dataclass(frozen=True, slots=True, kw_only=True)
class Task(_Kept):
    """A task of a session plan, which becomes one run; fields that a person added to the file are kept."""

    published_as: ClassVar[str] = "TaskShown"

    id: int  # Number within the plan, from 1; never reused.
    description: str  # Content of the task.
    recipe_id: str | None = None  # Recipe that performs it; None while no recipe is chosen.
    routed: bool = False
    """Whether the router chose the recipe, so that it chooses again when the description changes."""
    args: Mapping[str, plain.Json] = field(default_factory=dict)  # Arguments of its run.
    deps: tuple[int, ...] = ()  # Tasks that must be done first.
    dod: str | tuple[Mapping[str, plain.Json], ...] = ""
    """When the task is done: in words, which are reviewed, or as checks of recipes, which its run must pass."""
    scoping_question: str | None = None  # The open question, or the last one.
    asked_by: str | None = None  # Author of that question: `chief`, `user` or `system`.
    scoping_answer: str | None = None  # Answer to that question; None: not answered yet.
    scoping_before: tuple[Scoping, ...] = ()  # Earlier questions with their answers.
    status: TaskState = TaskState.PENDING  # State of the task.
    run_id: str | None = None  # Its present run; None before the first, and briefly while the run is created.
    attempt: int = 0  # Number of runs that were begun for it.
    earlier_runs: tuple[str, ...] = ()  # Runs before the present one, oldest first.
    forced: bool = False  # Whether a person started it although a dependency was not done.
    error: Failure | None = None  # Why it failed.
    started_at: shapes.Instant | None = None  # When its present run was begun.
    ended_at: shapes.Instant | None = None  # When that run ended.
    idempotency_key: str | None = None  # Key under which a repetition of the request that added it finds it.
    request_sha256: str | None = None  # Hash of that request.
    partial: bool = shapes.omitted(False)  # Whether its run is only partly done; the run's `ending` has the details.
    review: task_reviews.Review | None = shapes.omitted()
    """Review of its definition of done in words; None before its run is done, and if it is not reviewed."""
    other: Mapping[str, plain.Json] = shapes.internal(default_factory=dict)
    """Further fields of its file, which are kept."""

    @property
    def asks(self) -> bool:
        """Return whether a question is open."""
        return self.recipe_id is None or (self.scoping_question is not None and self.scoping_answer is None)

    @property
    def checks(self) -> tuple[Mapping[str, plain.Json], ...]:
        """Return the checks that its run must pass; empty if its definition of done is in words."""
        return () if isinstance(self.dod, str) else self.dod

    @property
    def deciding_run_id(self) -> str | None:
        """Return the run that decides the task's next state: that of its review, once that has one."""
        review = self.review
        is_reviewed = review is not None and review.status is not task_reviews.ReviewState.DONE
        return (review.run_id if review is not None and is_reviewed else None) or self.run_id

    @property
    def begun(self) -> bool:
        """Return whether its run is running or done, so that the task must not change."""
        return self.status in (TaskState.RUNNING, TaskState.DONE)


@shapes.open_ended
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(_Kept):
    """A session plan with all its tasks; fields that a person added to the file are kept."""

    published_as: ClassVar[str] = "PlanShown"

    session_id: SessionId  # Work session; names its folder.
    created_by: str = BY_USER  # Who split the work into tasks: `chief` or `user`.
    status: PlanState = PlanState.DRAFT  # State of the plan.
    intent: str | None = None  # The intent, in the words of its author.
    created_at: shapes.Instant  # When it was created.
    updated_at: shapes.Instant  # When it was last changed.
    revision: int = 1  # Number of its changes, from 1.
    tasks: tuple[Task, ...] = ()  # Tasks in the order in which they are shown and started.
    last_task_id: int = 0
    """Highest number of a task when one was removed; numbers up to it are never reused."""
    awaits_chief: bool = False
    """Whether the chief's tasks are still missing; until then, only the chief changes the plan."""
    chief_run_id: str | None = None
    """Run in which the chief splits the intent into tasks; None if there is none."""
    error: Failure | None = None  # Why the plan has no tasks.
    working_dir: str | None = None  # Workspace of its runs; None: the project folder.
    labels: Mapping[str, str] = field(default_factory=dict)  # Labels of its runs.
    priority: int = 0  # Priority of its runs.
    parent_run_id: str | None = None  # Run that requested the plan, of this project or another one.
    runs_above: int = 0  # Number of runs above its own, so that runs cannot start runs without end.
    request_sha256: str | None = None  # Hash of the request under an idempotency key that created it.
    review: Annotated[str, Literal["on", "off"]] | None = shapes.omitted()
    """Whether definitions of done in words are reviewed; None, as in plans of 0.1.0: they are not."""
    reviewer: task_reviews.Reviewer | None = shapes.omitted()
    """Who will review, as announced; None if no task is to be reviewed."""
    proposals: tuple[task_reviews.Proposal, ...] = shapes.omitted(())  # Changes proposed by the chief.
    approved_by: authors.Shown | None = shapes.omitted()
    """Author of its approval; None before the approval, and if unknown."""
    started_by: authors.Shown | None = shapes.omitted()
    """Author of its last start or resume; None before that, and if unknown."""
    changed_by: authors.Shown | None = shapes.omitted()
    """Author of its creation, or of its last change by an order; None if unknown."""
    other: Mapping[str, plain.Json] = shapes.internal(default_factory=dict)
    """Further fields of its file, which are kept."""

    @property
    def highest_task_id(self) -> int:
        """Return the highest number that a task has or had; 0 if the plan never had a task."""
        return max(self.last_task_id, *(task.id for task in self.tasks), 0)

    def reviews(self, task: Task) -> bool:
        """Return whether a task's definition of done is in words that are reviewed."""
        return self.review == task_reviews.ON and isinstance(task.dod, str) and bool(task.dod.strip())

    def task(self, task_id: int) -> Task | None:
        """Return a task by its number, or None."""
        return next((task for task in self.tasks if task.id == task_id), None)

    def is_within(self, scope: Scope) -> bool:
        """Return whether a plan is within a scope: it has tasks, and all of them are within it."""
        recipes = [task.recipe_id or "" for task in self.tasks] or [""]
        return all(scope.covers(recipe_id, self.labels) for recipe_id in recipes)

    def signed(self, before: Plan, author: authors.Author) -> Plan:
        """Return the plan with the author of the change that turned `before` into it."""
        signature = author.to_json()
        is_approved = self.status is PlanState.APPROVED and before.status is PlanState.DRAFT
        is_started = self.status is PlanState.RUNNING and before.status is not PlanState.RUNNING
        return dataclasses.replace(
            self,
            changed_by=signature,
            approved_by=signature if is_approved else self.approved_by,
            started_by=signature if is_started else self.started_by,
        )

    def with_task(self, changed: Task) -> Plan:
        """Return the plan with a changed task in place of the one with the same number."""
        tasks = tuple(changed if task.id == changed.id else task for task in self.tasks)
        return dataclasses.replace(self, tasks=tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary(shapes.Shape):
    """A session plan as lists show it."""

    published_as: ClassVar[str] = "PlanListed"

    session_id: SessionId  # Work session.
    status: Annotated[str, PlanState]  # State of the plan.
    created_by: str  # `chief` or `user`; empty if that cannot be read.
    intent: str | None  # The intent; of a long one, only the beginning.
    tasks: Annotated[Mapping[str, int], Mapping[TaskState, int]]
    """Number of tasks in each state; states without a task are omitted."""
    created_at: shapes.Instant  # When it was created.
    updated_at: shapes.Instant  # When it was last changed.
    revision: int  # Number of its changes; 0 if that cannot be read.
    error: Failure | None = None
    """Why its file cannot be read as a plan; the other fields have the values last read.

    A plan whose file has never been readable is shown as paused since the fault was noticed.
    """

    @property
    def waits(self) -> bool:
        """Return whether the plan waits for a person: it is a draft, or a question of a task is open."""
        return self.status == PlanState.DRAFT or self.tasks.get(TaskState.NEEDS_SCOPING.value, 0) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuery:
    """Selects the plans of a list, newest first."""

    status: str | None = None  # Only plans in this state.
    waits: bool = False  # Only plans that wait for a person.
    limit: int = 100  # Most plans to return, 1 to 1,000.
    cursor: tuple[str, str] | None = None  # `(created_at, session_id)` of the last plan of the previous page.
    scope: Scope | None = None  # Only plans of this scope; None: of any.
    partial: bool = False  # Whether plans that cannot be read now are omitted.


def damaged(session_id: str, error: Failure, noticed_at: str) -> PlanSummary:
    """Return the list entry of a plan whose file has never been readable."""
    return PlanSummary(
        session_id=session_id,
        status=PlanState.PAUSED.value,
        created_by="",
        intent=None,
        tasks={},
        created_at=noticed_at,
        updated_at=noticed_at,
        revision=0,
        error=error,
    )


def summary(plan: Plan) -> PlanSummary:
    """Return a plan as lists show it."""
    counted = Counter(task.status.value for task in plan.tasks)
    return PlanSummary(
        session_id=plan.session_id,
        status=plan.status.value,
        created_by=plan.created_by,
        intent=_beginning(plan.intent),
        tasks={state.value: counted[state.value] for state in TaskState if counted[state.value]},
        created_at=plan.created_at,
        updated_at=plan.updated_at,
        revision=plan.revision,
    )


def _beginning(text: str | None) -> str | None:
    if text is None or len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[: SHOWN_CHARACTERS - 1]}…"
