"""Bounds: how often a recipe asks agents at most."""

from __future__ import annotations

from app.dialects.amplifier import agents, calls, loops, walk
from app.domain import limits, plain


class _Unbounded(Exception):
    """No limit is known."""


def most_calls(document: plain.Object, frozen: plain.Object) -> limits.CallLimit:
    """Return the calls of all steps, those of loops as often as their limits allow, each with all of its attempts."""
    try:
        most = sum(_of_step(step, document, frozen) for step in walk.steps(document))
    except _Unbounded as unbounded:
        return limits.CallLimit(most=None, note=str(unbounded))
    return limits.CallLimit(most=most)


def _of_step(step: plain.Object, document: plain.Object, frozen: plain.Object) -> int:
    substeps = [substep for _, _, substep in walk.body(step)]
    if substeps:
        once = sum(_of_step(substep, document, frozen) for substep in substeps)
    elif step.get("type") == "recipe":
        raise _Unbounded(f"the step {step['id']} runs the recipe {step['recipe']}, whose calls are not counted here")
    else:
        once = 0 if step.get("type") == "bash" else _attempts(step, document) * _ways(step, frozen)
    return once * _iterations(step)


def _attempts(step: plain.Object, document: plain.Object) -> int:
    policy = calls.retries(step, agents.TRANSIENT) or calls.backoff(document)
    return 1 if policy is None else policy.max_attempts


def _ways(step: plain.Object, frozen: plain.Object) -> int:
    agent = frozen.get("agents", {}).get(step["agent"])
    return 1 if agent is None else len(agents.voices(agent, step, frozen.get("models", {})))


def _iterations(step: plain.Object) -> int:
    most, loop = 1, step if "foreach" in step or "while_condition" in step else None
    while isinstance(loop, dict):
        most *= loops.limit(loop)
        loop = loop.get("nested_foreach")
    return most
