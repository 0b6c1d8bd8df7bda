"""Interning: runs of one recipe share it in memory."""

from __future__ import annotations

import dataclasses

from app.domain import plain, runs
from app.engine import run_equipment
from tests.unit.worker import pools, toys


def start(number: int, *keys: str, **facts: plain.Json) -> runs.RunStart:
    """Return the facts of a run with its own copies of values."""
    program = toys.tools(*keys)
    sha256 = plain.sha256(plain.canonical(program))
    return pools.start(f"run-{number}", program, recipe_sha256=sha256, **facts)


def test_runs_of_one_recipe_hold_it_once() -> None:
    """The second run has equal facts, and shares recipe and frozen fields with the first."""
    interner = run_equipment.Interner()
    first, second = interner.shared(start(1, "a", frozen={"b": [1]})), start(2, "a", frozen={"b": [1]})
    shared = interner.shared(second)

    assert shared == second
    assert shared.recipe is first.recipe
    assert shared.frozen is first.frozen


def test_different_recipes_are_not_shared() -> None:
    """Other recipes, other frozen fields and wrong hashes are not shared."""
    interner = run_equipment.Interner()
    first = interner.shared(start(1, "a", frozen={"agents": "old"}))
    newer = interner.shared(start(2, "a", frozen={"agents": "new"}))
    other = interner.shared(dataclasses.replace(start(3, "b"), recipe_sha256=first.recipe_sha256))

    assert newer.frozen == {"agents": "new"}
    assert other.recipe == start(3, "b").recipe


def test_few_recipes_are_kept() -> None:
    """The recipe that was unused for longest is dropped first."""
    interner = run_equipment.Interner(kept=2)
    one, two = interner.shared(start(1, "one")), interner.shared(start(2, "two"))
    interner.shared(start(3, "one"))
    interner.shared(start(4, "three"))

    assert interner.shared(start(5, "one")).recipe is one.recipe
    assert interner.shared(start(6, "two")).recipe is not two.recipe
