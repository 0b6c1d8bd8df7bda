"""Worst cases: the most that the calls of a run take, by its limits, by prices, and by facts about backends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.domain import limits, runs
from app.engine import spending

Quote: TypeAlias = Callable[[str, str | None, int | None], spending.Quote]
"""Returns the most that any call takes, by its backend, its model and its longest reply."""

_LENGTHS = ("max_output_tokens", "max_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCase:
    """The most that calls of agents take."""

    calls: int | None  # Most calls; None: unknown.
    cost_usd: float | None  # Highest price; None: unknown.
    tokens: int | None  # Most tokens read and written; None: unknown.
    unbounded: tuple[str, ...] = ()  # Why an amount is unknown, with the agent or step that causes this.


def nothing_known(_backend: str, _model: str | None, _max_tokens: int | None) -> spending.Quote:
    """Return a quote without any known amount."""
    return spending.Quote()


def of_run(
    start: runs.RunStart, limit: limits.CallLimit, asked: Iterable[Mapping[str, Any]], quote: Quote
) -> WorstCase:
    """Return the worst case of a run that calls some agents up to a number of times."""
    if limit.most == 0:
        return WorstCase(calls=0, cost_usd=0.0, tokens=0)
    calls = min((most for most in (limit.most, start.limits.calls) if most is not None), default=None)
    quotes = [(agent, _quote(agent, start, quote)) for agent in asked]
    # Programs that a recipe calls itself report neither tokens nor a price, so that no limit bounds them.
    cost = _most([found.cost_usd for _, found in quotes], calls, start.limits.cost_usd) if quotes else None
    tokens = _most([found.tokens for _, found in quotes], calls, start.limits.tokens) if quotes else None
    reasons = [] if calls is not None else [f"calls: {limit.note or 'the recipe has no limit of its calls'}"]
    if cost is None:
        reasons += [_no_price(agent) for agent, found in quotes if found.cost_usd is None]
        if not quotes:
            reasons.append("cost: its programs report no prices; only a limit of calls bounds them")
    if tokens is None and not quotes:
        reasons.append("tokens: its programs report no tokens; only a limit of calls bounds them")
    elif tokens is None:
        reasons.append("tokens: the prompts of the steps have no limit; set tokens in limits")
    return WorstCase(
        calls=calls,
        cost_usd=None if cost is None else round(cost, 9),
        tokens=None if tokens is None else int(tokens),
        unbounded=tuple(reasons),
    )


def agents_of(start: runs.RunStart, speaks_through: str | None = None) -> Iterator[Mapping[str, Any]]:
    """Yield the agents that a run could ask, in their frozen form.

    Args:
        speaks_through: Argument that names the backend of a conversation; None: no conversation.
    """
    backend = start.args.get(speaks_through) if speaks_through is not None else None
    if isinstance(backend, str):
        yield {"id": backend, "backend": backend, "model": start.args.get("model")}
    for agent in _frozen(start.frozen):
        if isinstance(agent, dict) and isinstance(agent.get("backend"), str):
            yield agent
    for fields in (start.replaced or {}).values():
        if isinstance(fields.get("backend"), str):
            yield {**fields, "id": fields.get("agent_id"), _LENGTHS[0]: fields.get("max_tokens")}


def _frozen(frozen: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the agents of recipes by archetype, and those of runs without a recipe file."""
    agents = frozen.get("agents")
    yield from agents.values() if isinstance(agents, dict) else ()
    yield from frozen.get("participants") or ()
    yield from (frozen.get("chief"), frozen.get("agent"))


def _most(each: Iterable[float | None], calls: int | None, allowed: float | None) -> float | None:
    found = list(each)
    bounds = [] if allowed is None else [float(allowed)]
    if calls is not None and found and None not in found:
        bounds.append(calls * max(one for one in found if one is not None))
    return min(bounds, default=None)


def _quote(agent: Mapping[str, Any], start: runs.RunStart, quote: Quote) -> spending.Quote:
    """Return the worst quote of an agent, for the longest reply and all models that it or the recipe names."""
    lengths = [agent.get(_LENGTHS[0]), *_named(start.recipe, _LENGTHS)]
    known = [length for length in lengths if type(length) is int]
    # Without a limit for every reply the longest one is unknown.
    longest = max(known) if len(known) == len(lengths) else None
    models = {agent.get("model"), *(name for name in _named(start.recipe, ("model",)) if isinstance(name, str))}
    found = [quote(agent["backend"], model, longest) for model in models]
    costs = [each.cost_usd for each in found if each.cost_usd is not None]
    tokens = [each.tokens for each in found if each.tokens is not None]
    return spending.Quote(
        cost_usd=max(costs) if len(costs) == len(found) else None,
        tokens=max(tokens) if len(tokens) == len(found) else None,
    )


def _named(value: Any, names: tuple[str, ...]) -> Iterator[Any]:
    """Yield the values under some names anywhere in a recipe."""
    rest = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, Mapping):
            yield from (each[name] for name in names if each.get(name) is not None)
            rest.extend(each.values())
        elif isinstance(each, list | tuple):
            rest.extend(each)


def _no_price(agent: Mapping[str, Any]) -> str:
    return (
        f"cost: the agent {agent['id']} has no max_cost_per_call on its backend {agent['backend']}, and prices.json has"
        " no context_tokens for its model"
    )
