"""Routes for a new start from a step: fork a run, and preview a resume or a fork."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from fastapi import Body
from pydantic import BaseModel, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from app.api import callers, refusals, request_models, responses, routers, scoping
from app.api.dependencies import AuthorDep, ServicesDep
from app.api.runs import RunId
from app.domain import plain
from app.services import fork_requests, requests

router = routers.router(prefix="/api/runs", tags=["runs"])

_REFUSED = (
    *refusals.WRITE,
    *refusals.EXECUTED,
    "run_not_found",
    "journal_corrupt",
    "unknown_step",
    "unknown_dialect",
    "unknown_agent_session",
)
_FORKED = responses.created(
    fork_requests.Forked,
    *_REFUSED,
    "conversation_shared",
    "gate_denied",
    "resume_unchangeable",
    "idempotency_conflict",
    "approvals_need_keys",
    "file_damaged",
    "file_unreadable",
    "concurrency_limit",
    "unknown_parent",
    "depth_exceeded",
    meaning="The new run is on disk with the steps that it took over.",
    repeated="An earlier request with this Idempotency-Key created the run.",
    headers={"Location": "Address of the run."},
)
_PREVIEWED = responses.declared(
    fork_requests.PreviewReport,
    *refusals.BODY,
    "run_not_found",
    "journal_corrupt",
    "unknown_parent",
    "unknown_agent_session",
)

_Words = Annotated[str, Field(min_length=1, max_length=requests.DESCRIPTION_CHARACTERS)]


class ForkBody(BaseModel):
    """A new run that takes over the finished steps of another one; empty: all that match."""

    model_config = request_models.strict(
        {"from": "draft", "prompt": "Write the scene in the present tense."},
        {"args": {"scene_path": "Story/Scenes/SCN-the-locked-lamp-room.md"}, "labels": {"take": "two"}},
    )

    begin: Annotated[str, Field(min_length=1, max_length=300)] | Annotated[int, Field(ge=0)] | None = Field(
        None,
        alias="from",
        description="First step to perform again, by its key or the position of its journal line; by default "
        "the step that caused the failure, otherwise the first step that differs.",
    )
    args: dict[str, plain.Json] | None = Field(None, description="Arguments that override those of the run.")
    options: dict[str, plain.Json] | None = Field(None, description="Options that override those of the run.")
    recipe: Annotated[str, Field(pattern="^current$")] | None = Field(
        None, description="`current` uses the current version of the recipe."
    )
    prompt: _Words | None = Field(None, description="Prompt sent at the step `from` instead of the recipe's prompt.")
    agent: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        None, description="Agent from agents.json, or backend, to ask at the step `from`."
    )
    labels: request_models.Labelling = Field(default_factory=dict)
    parent_run_id: str | None = Field(
        None, description="Parent run; by default the run of the agent or command that sends the request, if known."
    )
    runs_above: request_models.RunsAbove = None

    def request(self) -> fork_requests.ForkRequest:
        """Return the request from the body."""
        return fork_requests.ForkRequest(
            from_key=self.begin if isinstance(self.begin, str) else None,
            line=self.begin if isinstance(self.begin, int) else None,
            args=self.args,
            options=self.options,
            current_recipe=self.recipe == "current",
            prompt=self.prompt,
            agent=self.agent,
            labels=self.labels,
            parent_run_id=self.parent_run_id,
            runs_above=self.runs_above,
        )


class PreviewBody(ForkBody):
    """An order that is only previewed."""

    model_config = request_models.strict({"order": "resume"}, {"order": "fork", "from": "draft"})

    order: fork_requests.Order = Field(description="Order to preview.")
    conversation: Literal["new"] | None = Field(
        None, description="`new` restarts the conversation of a resumed run from its content in the journal."
    )

    def request(self) -> fork_requests.ForkRequest:
        """Return the request from the body."""
        return dataclasses.replace(super().request(), new_conversation=self.conversation == "new")

    @model_validator(mode="after")
    def _fits_its_order(self) -> PreviewBody:
        if self.order == "resume" and (
            self.prompt or self.agent or self.labels or self.parent_run_id or isinstance(self.begin, int)
        ):
            raise ValueError("a resume takes no `prompt`, `agent`, `labels`, `parent_run_id` or line: preview a fork")
        if self.order == "fork" and self.conversation:
            raise ValueError("a fork takes no `conversation`: it never shares one")
        return self


@router.post("/{run_id}/fork", summary="Fork a run", status_code=201, responses=_FORKED)
async def fork_run(
    services: ServicesDep,
    request: Request,
    run_id: RunId,
    author: AuthorDep,
    body: Annotated[ForkBody | None, Body()] = None,
    idempotency_key: responses.IdempotencyKey = None,
) -> Response:
    """Start a run with the finished steps of another one, in any state, up to the first that would differ."""
    wanted = dataclasses.replace(
        body.request() if body else fork_requests.ForkRequest(), idempotency_key=idempotency_key
    )
    await scoping.refuse_fork(services, callers.caller_of(request), run_id, wanted)
    asked_by = await callers.run_of(services, request, wanted.parent_run_id)
    forked = await services.runs.forks.fork(run_id, wanted, author, asked_by=asked_by)
    headers = {"Location": f"/api/runs/{forked.run_id}"}
    return responses.as_json(forked, status=200 if forked.existed else 201, headers=headers)


@router.post("/{run_id}/preview", summary="Preview a resume or a fork", responses=_PREVIEWED)
async def preview_order(services: ServicesDep, request: Request, run_id: RunId, body: PreviewBody) -> Response:
    """Show which steps a resume or a fork would perform again, and what it would cost at most. Nothing is written."""
    wanted = body.request()
    # A resume has no labels and no parent.
    await scoping.refuse_fork(services, callers.caller_of(request), run_id, wanted)
    return responses.as_json(await services.runs.previews.report(run_id, body.order, wanted))
