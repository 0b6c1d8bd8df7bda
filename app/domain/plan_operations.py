"""Plan operations: the requests of session plans besides their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from app.domain import operations, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask(operations.Operation):
    """Start the run of a task, or find it by its key; the output is `{"run_id"}`."""

    kind: ClassVar[str] = "plan_start_task"
    idle: ClassVar[bool] = True

    plan: plain.Json  # The plan with this task alone.


@dataclass(frozen=True, slots=True, kw_only=True)
class AskChief(operations.Operation):
    """Start the run in which the chief splits a plan's intent, or find it; the output is `{"run_id"}`."""

    kind: ClassVar[str] = "plan_ask_chief"
    idle: ClassVar[bool] = True

    plan: plain.Json  # The plan without tasks.


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeTasks(operations.Operation):
    """Read the tasks that the chief's run made, with their recipes and arguments; the output is `{"tasks"}`."""

    kind: ClassVar[str] = "plan_take_tasks"
    idle: ClassVar[bool] = True

    plan: plain.Json  # The plan without tasks.
    run_id: str  # The chief's run.


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTask(operations.Operation):
    """Evaluate a task's checks against its run, which is done; the output is `{"checks", "failed", "message"}`."""

    kind: ClassVar[str] = "plan_check_task"
    idle: ClassVar[bool] = True

    run_id: str  # The task's run.
    checks: tuple[Mapping[str, plain.Json], ...]  # Checks in the form of recipes.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOutputs(operations.Operation):
    """Read outputs of earlier tasks' runs, for the arguments of a task; the output is `{"values"}`, in order."""

    kind: ClassVar[str] = "plan_read_outputs"
    idle: ClassVar[bool] = True

    wanted: tuple[Mapping[str, plain.Json], ...]  # The source: `{run_id, task}` with `output` or `path`.


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReview(operations.Operation):
    """Start the run that reviews a finished task, or find it by its key; the output is `{"run_id"}`."""

    kind: ClassVar[str] = "plan_start_review"
    idle: ClassVar[bool] = True

    plan: plain.Json  # The plan with this task alone.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReview(operations.Operation):
    """Read the verdict of a review's run; the output is `{"review", "proposals"}`."""

    kind: ClassVar[str] = "plan_read_review"
    idle: ClassVar[bool] = True

    session_id: str  # The plan.
    run_id: str  # Run of the review.
