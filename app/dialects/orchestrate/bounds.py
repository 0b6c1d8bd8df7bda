"""Bounds: the most calls of providers that a workflow can make."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from app.dialects.orchestrate import frames, schema
from app.domain import limits, plain


class _Unbounded(Exception):
    """No limit can be computed."""


_INSIDE = re.compile(r"[.\[#]")  # What follows the name of a step in the keys of its visits and parts.


def calls(document: plain.Object, options: plain.Object, over: int = 0) -> limits.CallLimit:
    """Return the calls of all steps with their retries; jumps back, and lists of items from steps, have no limit.

    Args:
        over: Number of steps, from the first, that only a jump back would reach.
    """
    try:
        return limits.CallLimit(most=_of_steps(document["steps"], options, over))
    except _Unbounded as unbounded:
        return limits.CallLimit(most=None, note=str(unbounded))


def progress(document: plain.Object, finished: Sequence[str], open_keys: Collection[str]) -> tuple[int, int]:
    """Return how many steps the flow has passed, from the first, and how many calls of the other ones are finished.

    Args:
        finished: Keys of the finished calls.
        open_keys: Keys of the steps that the run performs next.
    """
    order = {step["name"]: index for index, step in enumerate(document["steps"])}
    over = min((order[_INSIDE.split(key)[0]] for key in open_keys), default=0)
    return over, sum(order[_INSIDE.split(key)[0]] >= over for key in finished)


def _of_steps(steps: Sequence[plain.Object], options: plain.Object, over: int = 0) -> int:
    most = 0
    order = {step["name"]: index for index, step in enumerate(steps)}
    for index, step in list(enumerate(steps))[over:]:
        for branch in step.get("on", {}).values():
            target = branch["goto"]
            # A jump out of a loop may lead to a place before the loop.
            if order.get(target, -1) <= index and target != schema.END:
                raise _Unbounded(f"the step {step['name']} can jump back to {target}")
        most += _of_step(step, options)
    return most


def _of_step(step: plain.Object, options: plain.Object) -> int:
    if "for_each" in step:
        loop = step["for_each"]
        once = _of_steps(loop["steps"], options)
        if once and "items" not in loop:
            raise _Unbounded(f"the loop {step['name']} takes its items from another step")
        return once * len(loop.get("items", ()))
    if "provider" not in step:
        return 0
    return 1 + frames.retries(step, options.get("max_retries", 0)).further
