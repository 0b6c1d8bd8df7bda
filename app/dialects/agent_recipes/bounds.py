"""Bounds: the most prompts that a state machine can send to its agent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from app.dialects.agent_recipes import outcomes, transitions
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


def settled(finished: Sequence[str], open_keys: Collection[str]) -> int:
    """Return the calls of finished steps, and of the reminders that they did not need."""
    needed = sum(f"{key}{outcomes.REMINDER}" in open_keys for key in finished)
    return sum(not key.endswith(outcomes.REMINDER) for key in finished) * _WITH_REMINDER - needed


def _steps(recipe: plain.Object, args: plain.Object) -> int:
    limits, count = transitions.Guardrails.of(recipe, args), len(recipe["steps"])
    if transitions.loops(recipe):
        count *= limits.max_step_visits
    return int(min(count, limits.max_total_steps))
