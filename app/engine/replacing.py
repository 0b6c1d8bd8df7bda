"""Replacing: what a fork puts in place of the recipe's prompt or agent at a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from app.domain import operations, plain


def replaced(
    fields: Mapping[str, Mapping[str, plain.Json]], key: str, operation: operations.Operation
) -> operations.Operation:
    """Return an operation as a fork has it."""
    found = fields.get(key)
    if found is None or not isinstance(operation, operations.AgentCall):
        return operation
    # JSON has no tuples.
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return dataclasses.replace(operation, **values)  # type: ignore[arg-type]
