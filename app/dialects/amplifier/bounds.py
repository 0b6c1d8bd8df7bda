"""Bounds: the most calls of agents that a recipe can make."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from app.dialects.amplifier import agents, calls, loops, schema, templates, walk
from app.domain import limits, plain

_INSIDE = re.compile(r"[.\[:]")  # What follows the id of a step in the key of a part of it.
_QUESTION = "approval:"


class _Unbounded(Exception):
    """No limit can be computed."""


def most_calls(
    document: plain.Object, frozen: plain.Object, args: Mapping[str, plain.Json] | None = None, over: int = 0
) -> limits.CallLimit:
    """Return the calls of all steps; those in loops count as often as lists or limits allow, each with all of its
    attempts.

    Args:
        over: Number of steps that make no more calls, from the first, without those inside of others.
    """
    # A variable that a step may set is unknown before the run, even if an argument has its name.
    assigned = {schema.DEFAULT_ITEM, *_assigned(document)}
    given = {name: value for name, value in (args or {}).items() if name not in assigned}
    counts = {name: len(value) for name, value in given.items() if isinstance(value, list)}
    try:
        most = sum(_of_step(step, document, frozen, counts) for step in walk.steps(document)[over:])
    except _Unbounded as unbounded:
        return limits.CallLimit(most=None, note=str(unbounded))
    return limits.CallLimit(most=most)


def progress(document: plain.Object, finished: Sequence[str], open_keys: Collection[str]) -> tuple[int, int]:
    """Return how many steps of a run are over, from the first, and how many calls the other ones have finished.

    Args:
        finished: Keys of the finished calls.
        open_keys: Keys of the steps that the run performs next.
    """
    order = {step["id"]: index for index, step in enumerate(walk.steps(document))}
    done = [order.get(_INSIDE.split(key)[0], -1) for key in finished]
    first = 0
    for _, stage in walk.stages(document):
        after = first + len(stage["steps"])
        # A question precedes or follows all steps of its stage, and has a key that no step has.
        is_before = schema.when(stage.get("approval") or {}) == schema.BEFORE
        order[f"{_QUESTION}{stage.get('name')}"] = first if is_before else after
        first = after
    names = [key if key.startswith(_QUESTION) else _INSIDE.split(key)[0] for key in open_keys]
    over = min((order[name] for name in names if name in order), default=max((0, *done)))
    return over, sum(index >= over for index in done)


def _assigned(value: plain.Json) -> Iterator[str]:
    """Yield the names that a recipe assigns to: outputs, loop variables, updates."""
    if isinstance(value, list):
        yield from itertools.chain.from_iterable(map(_assigned, value))
    elif isinstance(value, dict):
        yield from (str(value[name]) for name in (*walk.SETTING, "as", "index_as") if name in value)
        yield from value.get("update_context") or ()
        yield from itertools.chain.from_iterable(map(_assigned, value.values()))


def _of_step(step: plain.Object, document: plain.Object, frozen: plain.Object, counts: Mapping[str, int]) -> int:
    substeps = [substep for _, _, substep in walk.body(step)]
    if substeps:
        once = sum(_of_step(substep, document, frozen, counts) for substep in substeps)
    elif step.get("type") == "recipe":
        raise _Unbounded(f"the step {step['id']} runs the recipe {step['recipe']}, whose calls are not counted here")
    else:
        once = 0 if step.get("type") == "bash" else _attempts(step, document) * _ways(step, frozen)
    return once * _iterations(step, counts)


def _attempts(step: plain.Object, document: plain.Object) -> int:
    policy = calls.retries(step, agents.TRANSIENT) or calls.backoff(document)
    return 1 if policy is None else policy.max_attempts


def _ways(step: plain.Object, frozen: plain.Object) -> int:
    agent = frozen.get("agents", {}).get(step["agent"])
    return 1 if agent is None else len(agents.voices(agent, step, frozen.get("models", {})))


def _iterations(step: plain.Object, counts: Mapping[str, int]) -> int:
    most, loop = 1, step if "foreach" in step or "while_condition" in step else None
    while isinstance(loop, dict):
        limit = loops.limit(loop)
        most *= min(limit, counts.get(templates.reference(loop.get("foreach", "")) or "", limit))
        loop = loop.get("nested_foreach")
    return most
