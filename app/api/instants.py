"""Instants as answers document them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

At = Annotated[
    str,
    Field(
        description="An instant in UTC.",
        examples=["2026-02-10T14:30:00.000Z"],
        json_schema_extra={"format": "date-time"},
    ),
]
"""An instant."""
