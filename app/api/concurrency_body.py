"""The body of a concurrency key, a part of the body that starts a run."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from app.domain import concurrency


class ConcurrencyBody(BaseModel):
    """How many runs of one key may be under way."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"key": "deploy"}, {"key": "book", "limit": 2, "policy": "cancel_waiting"}]},
    )

    key: Annotated[str, Field(pattern=concurrency.KEY_PATTERN)] = Field(description="Key that runs share.")
    limit: int = Field(1, ge=1, le=concurrency.MOST_RUNS, description="Runs of the key that may be under way.")
    policy: concurrency.Policy = Field(
        "queue",
        description="At the limit the new run waits, or is refused with 409, or the earlier runs of the key are "
        "cancelled, or those of them that have not begun.",
    )

    def given(self) -> concurrency.Concurrency:
        """Return the key of the body."""
        return concurrency.Concurrency(**dict(self))
