"""Garbage: no full collection interrupts a working service; a quiet one collects."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from app import bootstrap, clock, errors, garbage

by_whole = pytest.mark.skipif(sys.version_info >= (3, 14), reason="this interpreter collects in portions by itself")


class _Node:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def full() -> Iterator[list[int]]:
    """Return a list that receives the result of each full collection."""
    found: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            found.append(info["collected"])

    gc.collect()
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


@by_whole
async def test_work_is_not_stopped_by_a_full_collection(full: list[int]) -> None:
    """A run may make many objects without a full collection; the usual thresholds return afterwards."""
    usual = gc.get_threshold()
    collecting = asyncio.create_task(garbage.collect_when_quiet())
    await asyncio.sleep(0)
    kept = [[number] for number in range(3 * len(gc.get_objects()))]
    collecting.cancel()
    await asyncio.wait([collecting])

    assert kept
    assert full == []
    assert gc.get_threshold() == usual


@by_whole
async def test_a_quiet_process_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that only refer to themselves are collected soon after the work has ended."""
    monkeypatch.setattr(garbage, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(garbage, "is_due", lambda younger, share: True)
    node = _Node()
    gc.collect()
    gone, left = asyncio.Event(), weakref.ref(node, lambda _: gone.set())
    del node
    collecting = asyncio.create_task(garbage.collect_when_quiet())
    await asyncio.wait_for(gone.wait(), 60)
    collecting.cancel()

    assert left() is None


@pytest.mark.parametrize(
    ("younger", "share", "due"),
    [(0, 0.0, False), (5, 0.0, True), (5, 0.1, True), (5, 0.2, False), (499, 1.0, False), (500, 1.0, True)],
)
def test_a_busy_process_is_cleared_seldom(younger: int, share: float, due: bool) -> None:
    """A quiet process collects after a few new objects, a busy one only after many."""
    assert garbage.is_due(younger, share) is due


@pytest.mark.parametrize("code", [None, "index_away", "store_of_a_newer_version"])
async def test_a_start_collects_nothing_until_its_first_attempt_is_over(code: str | None) -> None:
    """A service makes no collection until its first attempt to start has ended, with or without success."""
    enabled: list[bool] = []

    @contextlib.asynccontextmanager
    async def build() -> AsyncIterator[Any]:
        enabled.append(gc.isenabled())
        if code is not None:
            raise errors.ConfigurationError("the index is away", code=code)
        yield None

    with contextlib.suppress(errors.ConfigurationError):
        async with bootstrap.ServiceStart(build, lambda _: None, clock.SystemClock()):
            enabled.append(gc.isenabled())

    assert enabled[0] is False
    assert enabled[1:] in ([], [True])
    assert gc.isenabled()
