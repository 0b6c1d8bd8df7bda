"""Answers of the routes of issues, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api.instants import At
from app.domain import issues


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class IssueListed(_Answer):
    """An issue as lists show it."""

    issue_id: str = Field(description="Its id; names its file.")
    title: str
    status: Literal["open", "closed"]
    kind: str = Field(description="What sort of issue it is: `dod`, `finding`, or any word of whoever made it.")
    severity: issues.Severity | None = Field(description="How bad it is; null where none was given.")
    recipe_id: str | None = Field(description="Recipe whose check found it.")
    run_id: str | None = Field(description="Run that found it last, or that it is about.")
    session_id: str | None = Field(description="Work session that it belongs to.")
    key: str | None = Field(description="Step that made it.")
    created_at: At
    updated_at: At
    revision: int = Field(description="Number of its changes, from 1.")


class IssueNote(_Answer):
    """What somebody said to an issue."""

    at: At
    text: str
    status: Literal["open", "closed"] = Field(description="Where the issue stood then.")


class IssueShown(IssueListed):
    """Everything about an issue."""

    body: str
    facts: dict[str, Any] = Field(description="Fields for programs, e.g. the failed check.")
    receipts: list[str] = Field(description="Receipts that prove it.")
    closed_at: At | None
    closed_by: str | None = Field(description="Run whose check found nothing any more; null where a person closed it.")
    edited_at: At | None = Field(description="When a person last changed its title or body.")
    notes: list[IssueNote]
    request_sha256: str | None = Field(description="Hash of the request that made it under an `Idempotency-Key`.")
