"""The registry of built-in drivers, by name."""

from __future__ import annotations

from collections.abc import Mapping

from app.engine import ports, registries


def _conference() -> ports.Driver:
    from app.flows.conference import Conference

    return Conference()


def _decomposition() -> ports.Driver:
    from app.flows.decomposition import Decomposition

    return Decomposition()


def _prompt() -> ports.Driver:
    from app.flows.prompt import Prompt

    return Prompt()


def _review() -> ports.Driver:
    from app.flows.review import Review

    return Review()


def _session_plan() -> ports.Driver:
    from app.flows.session_plan.driver import SessionPlan

    return SessionPlan()


DRIVERS: Mapping[str, ports.Driver] = registries.LazyRegistry(
    {
        "conference": _conference,
        "decomposition": _decomposition,
        "prompt": _prompt,
        "review": _review,
        "session_plan": _session_plan,
    }
)
"""Drivers of runs without a recipe file."""

RECIPE_IDS = frozenset({"conference", "decompose", "prompt", "review_task"})
"""Ids of the recipes of these runs, without that of session plans, whose runs are not listed."""
