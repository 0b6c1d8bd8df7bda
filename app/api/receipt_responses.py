"""Answers of the routes of receipts, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.api.instants import At


class ReceiptListed(BaseModel):
    """A receipt as lists show it, without its arguments and payload."""

    model_config = ConfigDict(extra="forbid")

    receipt_id: str
    session_id: str
    run_id: str
    key: str | None = Field(description="Step that it proves.")
    tool: str | None
    sha256: str | None = Field(description="Hash of the payload; null where the tool failed.")
    started_at: At | None
    completed_at: At | None
    failed: bool = Field(description="Whether the tool failed.")


class Receipt(BaseModel):
    """Proof of a tool execution."""

    model_config = ConfigDict(extra="allow")

    receipt_id: str
    session_id: str
    run_id: str
    key: str
    tool: str | None
    args: Any
    payload: Any
    sha256: str | None = Field(description="Hash of the payload; null where the tool failed.")
    started_at: At
    completed_at: At
    intact: bool = Field(
        description="Whether it fits the journal of its run; where the run is gone, whether it fits its hash."
    )
    alteration: str | None = Field(description="What does not fit, in words; null where it is intact.")
