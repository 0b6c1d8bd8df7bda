"""Loops: their items, their width, and their limits (amplifier-recipe-schema, looping and iteration)."""

# `max_concurrent_llm` is divided over nested loops: a driver is deterministic, and branches cannot compete for a
# semaphore. Each loop runs at most its share of branches.

from __future__ import annotations

from app.dialects.amplifier import schema, templates
from app.domain import json_schemas, plain


class Unfit(ValueError):
    """A variable cannot be iterated over."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code  # Stable name of the reason.


def items(loop: plain.Object, scope: templates.Scope) -> list[plain.Json]:
    """Return the items of a loop."""
    name = templates.reference(loop["foreach"]) or ""
    found = scope.find(name)
    if not isinstance(found, list):
        kind = "a text" if isinstance(found, templates.Kept) else json_schemas.kind_of(found)
        raise Unfit("not_a_list", f"foreach goes through {{{{{name}}}}}, which is {kind}, not a list")
    most = limit(loop)
    if len(found) > most:
        raise Unfit("too_many_iterations", f"{{{{{name}}}}} has {len(found)} items; max_iterations allows {most}")
    return found


def limit(loop: plain.Object) -> int:
    """Return the most iterations of a loop."""
    most: int = loop.get("max_while_iterations", loop.get("max_iterations", schema.DEFAULT_ITERATIONS))
    return most


def variables(loop: plain.Object, item: plain.Json, index: int) -> dict[str, templates.Value]:
    """Return the values of an iteration's variables."""
    own = {loop.get("as", schema.DEFAULT_ITEM): item} if "foreach" in loop else {}
    return own | ({loop["index_as"]: index} if "index_as" in loop else {})


def counters(index: int) -> dict[str, templates.Value]:
    """Return the variables with which an iteration of a loop with a condition reads its position."""
    return dict(zip(schema.COUNTERS, (index, index + 1), strict=True))


def width(parallel: bool | int | None, count: int, lanes: int | None) -> int | None:
    """Return how many of the branches may run at the same time; None: one after the other.

    Args:
        parallel: True: all of them; a number: at most this many.
        lanes: Most agents that may be asked at the same time; None: any number.
    """
    if parallel is None or parallel is False:
        return None
    wanted = count if parallel is True else min(parallel, count)
    return max(1, wanted if lanes is None else min(wanted, lanes))


def lanes_inside(lanes: int | None, width: int) -> int | None:
    """Return how many agents each of several branches may ask at the same time within the common limit."""
    return None if lanes is None else max(1, lanes // width)
