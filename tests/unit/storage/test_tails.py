"""Tails: after any change at the end of a journal, an opening finds its clean beginning or reports damage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app import errors
from app.domain.decisions import DecisionKind
from app.engine.maintenance_port import Verification
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN
from tests.examples import examples

BATCHES = (1, 3, 2, 1, 2)
"""Numbers of lines of each journal that are appended in one turn, and so share a sync."""

Change = Callable[[bytes], bytes]


async def left(harness: store_harness.StoreHarness) -> None:
    """Make a run whose journals have several batches, and kill its process."""
    log = await store_harness.begun(harness)
    count = 0
    for size in BATCHES:
        keys = [f"s{count + number}" for number in range(size)]
        count += size
        starts = (log.decide(DecisionKind.STARTED, {"key": key, "attempt": 1, "operation": "x"}) for key in keys)
        await asyncio.gather(*(log.append_step(store_harness.step(key)) for key in keys), *starts)
    await harness.crash()


async def found(name: str, change: Change) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None, bool]:
    """Return a journal's lines before and after the change, and whether the run continues behind them."""
    harness = store_harness.MemoryStoreHarness(lose_unsynced=False)
    await left(harness)
    before = [json.loads(line) for line in harness.content(name).splitlines()]
    harness.change(name, change)
    try:
        log = await harness.store.open(RUN)
    except errors.JournalCorrupt:
        return before, None, False
    await log.append_step(store_harness.step("next"))
    await log.decide(DecisionKind.STARTED, {"key": "next", "attempt": 1, "operation": "x"})
    await log.close()
    after = [json.loads(line) for line in harness.content(name).splitlines()][:-1]
    sound = is_sound(await harness.store.maintenance.verify(RUN))
    await harness.store.close()
    return before, after, sound


def is_sound(report: Verification) -> bool:
    """Return whether the only flaw is that confirmed lines were at the lost end."""
    return all(
        "has lost lines at its end" in str(file["reason"]) for file in report["files"] if file["state"] == "corrupt"
    )


def confirmed(lines: list[dict[str, Any]]) -> int:
    """Return the number of lines before the last batch."""
    return int(lines[-1]["batch"])


journals = st.sampled_from(["steps.jsonl", "control.jsonl"])
places = st.floats(0, 1, exclude_max=True)


@settings(max_examples=examples(30), deadline=None)
@given(journals, places)
def test_a_truncated_end_leaves_the_lines_before_it(name: str, place: float) -> None:
    """A journal cut off anywhere keeps exactly its complete lines, and the run continues behind them."""
    kept: list[int] = []

    def cut(content: bytes) -> bytes:
        short = content[: int(place * len(content))]
        kept.append(short.count(b"\n"))
        return short

    before, after, sound = asyncio.run(found(name, cut))

    assert after == before[: kept[0]]
    assert sound


@settings(max_examples=examples(40), deadline=None)
@given(journals, places, st.integers(0, 7))
def test_a_flipped_bit_costs_the_last_batch_at_most(name: str, place: float, bit: int) -> None:
    """A wrong bit anywhere leaves a clean beginning with every line before the last batch, or is reported as damage."""

    def flip(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[int(place * len(content))] ^= 1 << bit
        return bytes(changed)

    before, after, sound = asyncio.run(found(name, flip))

    if after is not None:
        assert after == before[: len(after)]
        assert len(after) >= confirmed(before)
        assert sound


@settings(max_examples=examples(30), deadline=None)
@given(journals, st.floats(0.6, 1), st.integers(1, 5000))
def test_zeros_at_the_end_are_torn(name: str, place: float, count: int) -> None:
    """An end that the disk left as zeros is cut off, or reported as damage if confirmed lines were in it."""
    before, after, sound = asyncio.run(found(name, lambda content: content[: int(place * len(content))] + bytes(count)))

    assert after is not None
    assert after == before[: len(after)]
    assert sound
