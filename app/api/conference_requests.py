"""The body of requests for conferences."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from app.api import request_models
from app.services import conferences, requests

_Name = Annotated[str, Field(min_length=1, max_length=200)]


class ConferenceBody(BaseModel):
    """A conference: a message to several agents, and what they may judge it by."""

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
        description="What the team is asked."
    )
    agents: Annotated[list[_Name], Field(max_length=conferences.MOST_AGENTS)] | None = Field(
        None,
        description="Agents to ask, by id or archetype, the chief too if named; by default all others that confer.",
    )
    allowed_tools: Annotated[list[_Name], Field(max_length=200)] | None = Field(
        None, description="Tools that the chief may call; by default all, an empty list: none."
    )
    require_tool: bool = Field(False, description="Whether at least one call of the chief must bring something.")
    max_tool_calls: int = Field(
        conferences.USUAL_TOOL_CALLS,
        ge=1,
        le=conferences.MOST_TOOL_CALLS,
        description="Calls that the chief may make, refused ones included.",
    )
    session_id: Annotated[str, Field(pattern=requests.SESSION_ID_PATTERN)] | None = Field(
        None, description="Work session that receipts belong to; by default the parent's, or a new one."
    )
    working_dir: str | None = Field(None, description="Workspace of the tools; by default the project.")
    labels: dict[request_models.LabelName, request_models.LabelValue] = Field(
        default_factory=dict, max_length=requests.LABELS, description="Labels for finding the run again."
    )
    priority: int = Field(0, ge=requests.PRIORITIES[0], le=requests.PRIORITIES[-1], description="Higher goes first.")
    parent_run_id: str | None = Field(None, description="Run that asks; runs may start runs only so deep.")
    runs_above: request_models.RunsAbove = None

    def conference(self, idempotency_key: str | None) -> conferences.NewConference:
        """Return the conference that the body and its header ask for."""
        return conferences.NewConference(**dict(self), idempotency_key=idempotency_key)
