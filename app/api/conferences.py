"""The route that starts conferences; a conference is a run, and is shown and controlled like one."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from app.api import callers, refusals, request_models, responses, routers
from app.api.dependencies import AuthorDep, ServicesDep
from app.services import conferences

router = routers.router(prefix="/api/conferences", tags=["conferences"])

_Name = Annotated[str, Field(min_length=1, max_length=200)]


class ConferenceBody(BaseModel):
    """A conference: a message to several agents, and the tools for judging it."""

    model_config = request_models.strict(
        {"message": "Is the lantern's light in scene 21 what the canon says of it?"},
        {
            "message": "Does the arrival hold up beside the outline?",
            "agents": ["critic", "continuity-001"],
            "allowed_tools": ["file_locator", "outline_analyzer"],
            "require_tool": True,
        },
    )

    message: Annotated[str, Field(min_length=1, max_length=conferences.MESSAGE_CHARACTERS, pattern=r"\S")] = Field(
        description="Question for the agents."
    )
    agents: Annotated[list[_Name], Field(max_length=conferences.MOST_AGENTS)] | None = Field(
        None,
        description="Agents to ask, by id or archetype, the chief only if named; by default all other agents "
        "that confer.",
    )
    allowed_tools: Annotated[list[_Name], Field(max_length=200)] | None = Field(
        None, description="Tools that the chief may call; by default all. An empty list allows none."
    )
    require_tool: bool = Field(False, description="Whether at least one tool call of the chief must return a payload.")
    max_tool_calls: int = Field(
        conferences.USUAL_TOOL_CALLS,
        ge=1,
        le=conferences.MOST_TOOL_CALLS,
        description="Maximum number of tool calls by the chief, including refused ones.",
    )
    session_id: request_models.SessionId | None = Field(
        None, description="Work session of the receipts; by default the parent's, or a new one."
    )
    working_dir: str | None = Field(None, description="Workspace of the tools; by default the project.")
    labels: request_models.Labels = Field(default_factory=dict, description="Labels for finding the run.")
    priority: request_models.Priority = Field(0, description="Priority of the run; higher values start first.")
    parent_run_id: str | None = Field(
        None,
        description="Parent run; by default the run of the agent or command that sends the request, if known. "
        "The depth of nested runs is limited.",
    )
    runs_above: request_models.RunsAbove = None

    def conference(self, idempotency_key: str | None) -> conferences.NewConference:
        """Return the conference that the body and its header request."""
        return conferences.NewConference(**dict(self), idempotency_key=idempotency_key)


_STARTED = responses.created(
    conferences.Started,
    *refusals.START,
    "no_chief",
    meaning="The conference is accepted and on disk as a run.",
    repeated="An earlier request with this Idempotency-Key created the conference.",
    headers={"Location": "Address of the run."},
)


@router.post("", summary="Hold a conference", status_code=201, responses=_STARTED)
async def start_conference(
    services: ServicesDep,
    request: Request,
    body: ConferenceBody,
    author: AuthorDep,
    idempotency_key: responses.IdempotencyKey = None,
) -> Response:
    """Ask several agents for an opinion on the same evidence, gathered by the chief with tools."""
    asked_by = await callers.run_of(services, request, body.parent_run_id)
    started = await services.conferences.start(body.conference(idempotency_key), author, asked_by)
    headers = {"Location": f"/api/runs/{started.run_id}"}
    return responses.as_json(started, status=200 if started.existed else 201, headers=headers)
