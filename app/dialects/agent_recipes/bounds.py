"""Bounds: the most prompts that a state machine can send to its agent."""

from __future__ import annotations

from collections.abc import Mapping

from app.dialects.agent_recipes import transitions
from app.domain import limits, plain

_WITH_REMINDER = 2


def calls(document: plain.Object, frozen: plain.Object, args: plain.Object) -> limits.CallLimit:
    """Return the limit of the guardrails, with a reminder for each step; restarts need a limit of their own."""
    recipes: Mapping[str, plain.Object] = {document["id"]: document, **frozen.get("recipes", {})}
    most = max(_steps(recipe, args) for recipe in recipes.values()) * _WITH_REMINDER
    if not any(True for recipe in recipes.values() for _ in transitions.restarts(recipe)):
        return limits.CallLimit(most=_steps(document, args) * _WITH_REMINDER)
    restarts = transitions.Guardrails.of(document, args).max_restarts
    if restarts is None:
        note = "the recipe can restart any number of times; set a limit with the argument max_restarts"
        return limits.CallLimit(most=None, note=note)
    return limits.CallLimit(most=most * (restarts + 1))


def _steps(recipe: plain.Object, args: plain.Object) -> int:
    limits, count = transitions.Guardrails.of(recipe, args), len(recipe["steps"])
    if transitions.loops(recipe):
        count *= limits.max_step_visits
    return int(min(count, limits.max_total_steps))
