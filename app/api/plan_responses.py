"""Answers of the routes of session plans, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from app.api import response_models
from app.api.instants import At
from app.domain import plans

_SessionId = Annotated[str, Field(description="Id of the plan, and of its work session.", examples=["sp_5h2m9q0x7c"])]
_Maker = Annotated[str, Field(description="`chief` or `user`.")]


class PlanListed(BaseModel):
    """A session plan as lists show it."""

    model_config = ConfigDict(extra="forbid")

    session_id: _SessionId
    status: plans.PlanState
    created_by: _Maker
    intent: str | None
    tasks: dict[plans.TaskState, int] = Field(description="How many tasks are in each state.")
    created_at: At
    updated_at: At
    revision: int


class ScopingShown(BaseModel):
    """An earlier question about a task, with its answer."""

    model_config = ConfigDict(extra="allow")

    question: str
    answer: str
    asked_by: str | None = Field(description="Who asked: `chief`, `user` or `system`.")


class TaskShown(BaseModel):
    """A task of a session plan; fields that somebody has written into the file by hand stay in it."""

    model_config = ConfigDict(extra="allow")

    id: int = Field(description="Number within the plan, from 1; never given twice.")
    description: str
    recipe_id: str | None = Field(description="Recipe that does it; null while none is known.")
    routed: bool = Field(description="Whether the router chose the recipe.")
    args: dict[str, Any] = Field(description="Arguments of its run.")
    deps: list[int] = Field(description="Tasks that must be done before.")
    dod: str = Field(description="Definition of done, in words.")
    scoping_question: str | None = Field(description="What must be known before it is started, or was asked last.")
    asked_by: str | None = Field(description="Who asks that: `chief`, `user` or `system`.")
    scoping_answer: str | None = Field(description="What was answered to it; null: nothing yet.")
    scoping_before: list[ScopingShown] = Field(description="Earlier questions with their answers.")
    status: plans.TaskState
    run_id: str | None = Field(description="Its present run.")
    attempt: int = Field(description="How many runs were begun for it.")
    earlier_runs: list[str] = Field(description="Runs before the present one, oldest first.")
    forced: bool = Field(description="Whether a person started it although something before it was not done.")
    error: response_models.StepFault | None = Field(description="Why it failed.")
    started_at: At | None
    ended_at: At | None
    idempotency_key: str | None = Field(description="Key under which a repetition of its request finds it.")
    request_sha256: str | None = Field(description="Hash of the request that added it under an Idempotency-Key.")


class PlanShown(BaseModel):
    """A session plan with all its tasks; fields that somebody has written into the file by hand stay in it."""

    model_config = ConfigDict(extra="allow")

    session_id: _SessionId
    created_by: _Maker
    status: plans.PlanState
    intent: str | None = Field(description="What is wanted as a whole.")
    created_at: At
    updated_at: At
    revision: int = Field(description="Number of its changes, from 1.")
    tasks: list[TaskShown] = Field(description="In the order in which they are shown and begun.")
    last_task_id: int = Field(description="Numbers up to it are never given again, even if tasks were removed.")
    awaits_chief: bool = Field(description="Whether the tasks of the chief are still to come.")
    chief_run_id: str | None = Field(description="Run in which the chief splits the intent into tasks.")
    error: response_models.StepFault | None = Field(description="Why there are no tasks.")
    working_dir: str | None = Field(description="Workspace of its runs; null: the project.")
    labels: dict[str, str] = Field(description="Labels of its runs.")
    priority: int = Field(description="Priority of its runs.")
    parent_run_id: str | None = Field(description="Run that asked for the plan, of this project or another one.")
    runs_above: int = Field(description="How many runs are above those of the plan.")
    request_sha256: str | None = Field(description="Hash of the request that made it under an Idempotency-Key.")
