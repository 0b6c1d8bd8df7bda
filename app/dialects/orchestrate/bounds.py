"""Bounds: the most calls of providers that a workflow can make."""

from __future__ import annotations

from collections.abc import Sequence

from app.dialects.orchestrate import frames, schema
from app.domain import limits, plain


class _Unbounded(Exception):
    """No limit can be computed."""


def calls(document: plain.Object, options: plain.Object) -> limits.CallLimit:
    """Return the calls of all steps with their retries; jumps back, and lists of items from steps, have no limit."""
    try:
        return limits.CallLimit(most=_of_steps(document["steps"], options))
    except _Unbounded as unbounded:
        return limits.CallLimit(most=None, note=str(unbounded))


def _of_steps(steps: Sequence[plain.Object], options: plain.Object) -> int:
    most = 0
    order = {step["name"]: index for index, step in enumerate(steps)}
    for index, step in enumerate(steps):
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
