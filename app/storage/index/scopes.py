"""Scopes in the index: SQL conditions for the rows that a limited key may see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from app.domain.access import Scope

Condition: TypeAlias = tuple[str, Mapping[str, Any]]  # A condition, and the values of its parameters.


def of_runs(scope: Scope | None) -> Iterator[Condition]:
    """Yield the conditions for the runs of a scope."""
    if scope is None:
        return
    if scope.recipes:
        named = {f"scope_recipe{number}": recipe_id for number, recipe_id in enumerate(scope.recipes)}
        yield f"COALESCE(runs.recipe_id, '') IN ({', '.join(f':{name}' for name in named)})", named
    for number, (label, values) in enumerate(scope.values().items()):
        given = {f"scope_value{number}_{index}": value for index, value in enumerate(values)}
        one_of = ", ".join(f":{name}" for name in given)
        # The table has an alias here, since the list of a label already has `run_labels` in its source.
        carries = f"scoped.run_id = runs.run_id AND scoped.name = :scope_label{number} AND scoped.value IN ({one_of})"
        yield f"EXISTS (SELECT 1 FROM run_labels scoped WHERE {carries})", given | {f"scope_label{number}": label}


def of_things(table: str, scope: Scope | None) -> Iterator[Condition]:
    """Yield the condition for rows of a table that belong to runs of a scope."""
    if scope is not None:
        conditions = list(of_runs(scope)) or [("TRUE", {})]
        within = " AND ".join(sql for sql, _ in conditions)
        values = {name: value for _, given in conditions for name, value in given.items()}
        yield f"{table}.run_id IN (SELECT runs.run_id FROM runs WHERE {within})", values
