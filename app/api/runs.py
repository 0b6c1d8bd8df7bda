"""Routes of runs: start, list, show, stop and delete them (execution-modes, appendix D)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Body, Path, Query
from pydantic import BaseModel, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from app import errors
from app.api import callers, gateway, polling, queries, refusals, request_models, responses, routers, run_lists, scoping
from app.api.dependencies import AuthorDep, ServicesDep
from app.api.responses import as_json, declared
from app.domain import views
from app.engine import run_engine
from app.services import budgets, progress, requests

router = routers.router(prefix="/api/runs", tags=["runs"])

RunId = Annotated[str, Path(description="Id of the run.", examples=["20260210T143000Z-k3x9af"])]
"""A run's id in a path."""


class PauseBody(BaseModel):
    """Options of a pause; empty: at the next step boundary."""

    model_config = request_models.strict({}, {"interrupt": True})

    interrupt: bool = Field(
        False,
        description="Interrupt the steps in flight; they leave no record, and run again as their next attempt "
        "when the run continues.",
    )


class ResumeBody(BaseModel):
    """Options of a resume; empty: from the causes of the ending, without changes."""

    model_config = request_models.strict(
        {"from": "draft"}, {"args": {"scene_path": "Story/Scenes/SCN-the-locked-lamp-room.md"}}
    )

    from_key: str | None = Field(None, alias="from", description="Key of the step to resume from.")
    args: dict[str, Any] | None = Field(None, description="Arguments that override those of the run.")
    options: dict[str, Any] | None = Field(None, description="Options that override those of the run.")
    recipe: Literal["current"] | None = Field(None, description="`current` uses the current version of the recipe.")
    conversation: Literal["new"] | None = Field(
        None, description="`new` starts a new conversation with the agent from the prompts and replies in the journal."
    )

    def request(self) -> requests.ResumeRequest:
        """Return the request from the body."""
        return requests.ResumeRequest(
            from_key=self.from_key,
            args=self.args,
            options=self.options,
            current_recipe=self.recipe == "current",
            new_conversation=self.conversation == "new",
        )


class MarksBody(BaseModel):
    """Changes of a run's labels and pin, in any state of the run."""

    model_config = request_models.strict({"labels": {"book": "one", "draft": None}}, {"pinned": True})

    labels: request_models.Labelling = Field(default_factory=dict)
    pinned: request_models.Pinning = None

    @model_validator(mode="after")
    def _changes_something(self) -> MarksBody:
        if not self.labels and self.pinned is None:
            raise ValueError("name what changes: `labels` or `pinned`")
        return self

    def marks(self) -> run_engine.Marks:
        """Return the changes."""
        return run_engine.Marks(labels=self.labels, pinned=self.pinned)


_STARTED = responses.created(
    requests.Moved,
    *refusals.START,
    *refusals.EXECUTED,
    *refusals.CONVERSATION,
    "inline_recipes_off",
    "unknown_dialect",
    "recipe_busy",
    "approvals_need_keys",
    "file_damaged",
    "file_unreadable",
    "unroutable",
    meaning="The run is accepted and on disk; `running` if the pool has capacity, else `pending`.",
    repeated="An earlier request with this Idempotency-Key created the run.",
    headers={"Location": "Address of the run."},
)
_MOVED = declared(requests.Moved, *refusals.COMMAND)
_UNPAUSED = declared(requests.Moved, *refusals.COMMAND, "budget_exhausted")
_MARKED = declared(requests.Marked, *refusals.WRITE, "run_not_found", "run_busy", "journal_corrupt")
_RESUMED = declared(
    requests.Moved,
    *refusals.COMMAND,
    *refusals.EXECUTED,
    *refusals.CONVERSATION,
    "unknown_step",
    "gate_denied",
    "approval_outdated",
    "recipe_differs",
    "resume_unchangeable",
    "no_conversation",
)
_NoBody = Annotated[request_models.EmptyBody | None, Body(description="Optional.")]


@router.post("", summary="Start a run", status_code=201, responses=_STARTED)
async def start_run(
    services: ServicesDep,
    request: Request,
    body: request_models.StartBody,
    author: AuthorDep,
    idempotency_key: responses.IdempotencyKey = None,
) -> Response:
    """Start a run of a recipe. Without `recipe_id`, the router chooses a recipe from the description."""
    return await gateway.start(services, request, body.request(idempotency_key), author)


@router.get(
    "",
    summary="List runs, newest first",
    responses=responses.page(list[progress.RunListed], meaning="A page of runs."),
)
async def list_runs(
    services: ServicesDep,
    request: Request,
    query: Annotated[queries.RunsQuery, Query()],
    if_none_match: responses.IfNoneMatch = None,
) -> Response:
    """List runs with their progress. Filters are combined with AND."""
    return await run_lists.page(services, request, query, if_none_match)


@router.get(
    "/{run_id}",
    summary="Show a run",
    responses=declared(
        views.RunDetail,
        "run_not_found",
        meaning="The run, with everything that a polling client needs.",
        headers={"ETag": "Changes whenever the response does."},
    )
    | responses.NOT_MODIFIED,
)
async def show_run(
    services: ServicesDep,
    run_id: RunId,
    wait: responses.WaitForChange = None,
    if_none_match: responses.IfNoneMatch = None,
) -> Response:
    """Return a run with its newest steps and its slots. `wait` makes this a long poll."""
    return await polling.shown(services, run_id, wait or 0, polling.entity_tags(if_none_match))


@router.post("/{run_id}/cancel", summary="Cancel a run", responses=_MOVED)
async def cancel_run(services: ServicesDep, run_id: RunId, author: AuthorDep, _body: _NoBody = None) -> Response:
    """Cancel an unfinished run. After the 200 the run can no longer end as `done`."""
    return as_json(await services.runs.cancel(run_id, author))


@router.post("/{run_id}/pause", summary="Pause a run", responses=_MOVED)
async def pause_run(
    services: ServicesDep,
    run_id: RunId,
    author: AuthorDep,
    body: Annotated[PauseBody | None, Body()] = None,
) -> Response:
    """Pause a run at its next step boundary, or at once with `interrupt: true`."""
    return as_json(await services.runs.pause(run_id, author, interrupt=body is not None and body.interrupt))


@router.post("/{run_id}/unpause", summary="Resume a paused run", responses=_UNPAUSED)
async def unpause_run(services: ServicesDep, run_id: RunId, author: AuthorDep, _body: _NoBody = None) -> Response:
    """Resume a paused run. It re-enters the queue, unless the budget that stopped it still lacks room."""
    return as_json(await services.runs.unpause(run_id, author))


@router.patch(
    "/{run_id}/limits",
    summary="Change the limits of a run",
    responses=responses.declared(budgets.RunLimited, *refusals.COMMAND, meaning="The limits, on disk and in force."),
)
async def limit_run(
    services: ServicesDep, run_id: RunId, author: AuthorDep, body: request_models.LimitsBody
) -> Response:
    """Change the limits of an unfinished run; null removes one. A run paused at a limit continues if it now fits."""
    if not body.changes():
        raise refusals.invalid([errors.Flaw(path="$", code="missing", message="changes nothing")])
    return as_json((await services.budgets.limit(run_id, body.changes(), author)).to_json())


@router.post("/{run_id}/resume", summary="Resume a failed or cancelled run", responses=_RESUMED)
async def resume_run(
    services: ServicesDep,
    request: Request,
    run_id: RunId,
    author: AuthorDep,
    body: Annotated[ResumeBody | None, Body()] = None,
) -> Response:
    """Continue a failed or cancelled run from the failed step, or from an earlier one."""
    wanted = body.request() if body else requests.ResumeRequest()
    await scoping.refuse_conversation(services, callers.caller_of(request), wanted.args)
    return as_json(await services.runs.resume(run_id, wanted, author))


@router.patch("/{run_id}", summary="Label or pin a run", responses=_MARKED)
async def mark_run(
    services: ServicesDep, request: Request, run_id: RunId, author: AuthorDep, body: MarksBody
) -> Response:
    """Change a run's labels or its pin, in any state. A pinned run is never pruned."""
    await scoping.refuse_labels(services, callers.caller_of(request), run_id, body.marks().labels)
    return as_json(await services.runs.mark(run_id, body.marks(), author))


@router.delete(
    "/{run_id}",
    summary="Delete a finished run",
    status_code=204,
    responses=refusals.documented(("run_not_found", "wrong_state", "run_busy", "no_room")),
)
async def delete_run(services: ServicesDep, run_id: RunId, author: AuthorDep) -> Response:
    """Delete a finished run. Its receipts are kept."""
    await services.runs.delete(run_id, author)
    return Response(status_code=204)
