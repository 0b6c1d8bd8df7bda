"""Tests of pipelines over a run store: crashes, resumes, receipts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from app import clock
from app.domain import plain
from app.domain.decisions import DecisionKind
from app.domain.states import RunState
from app.engine import probes, refusal_performers, resume_rules, runner
from app.engine.run_equipment import Equipment
from app.storage import memory_store
from app.tools import issue_performer
from tests.unit.dialects import bench
from tests.unit.engine import logs


class Stored:
    """A pipeline whose run is in a store."""

    def __init__(self, store: memory_store.MemoryStore, document: dict[str, Any]) -> None:
        self.store = store
        self.pipeline = bench.Pipeline(document)
        self.tables = self.pipeline.tables
        self.start = self.pipeline.disk.start
        self.view: Any = None

    async def run(self) -> RunState:
        """Open the run, and continue until it rests."""
        kinds = ("tool_call", "agent_call", "commit_file", "check", *issue_performer.KINDS)
        equipment = Equipment(
            performers={**dict.fromkeys(kinds, self.tables), "refusal": refusal_performers.RefusalPerformer()},
            clock=clock.FakeClock(),
            masker=plain.Masker(),
            probes=probes.NoProbes(),
        )
        log = await self.store.open(self.start.run_id)
        driven = runner.Runner(log, bench.DIALECT, equipment, logs.CountedSlots(), lambda: None)
        try:
            return await driven.run()
        finally:
            self.view = driven.view()
            await log.close()

    async def resume(self, from_key: str | None = None) -> RunState:
        """Resume the ended run."""
        log = await self.store.open(self.start.run_id)
        dead = resume_rules.dead_positions(log.loaded, from_key)
        await log.decide(DecisionKind.RESUMED, {"dead": [[position, position] for position in sorted(dead)]})
        await log.close()
        self.tables.asked.clear()
        return await self.run()

    def repeated(self) -> list[str]:
        """Return the keys performed since the last resume."""
        return [key for key, _ in self.tables.asked]


@pytest.fixture
async def store():
    """Return a store in memory."""
    async with memory_store.MemoryStore(clock=clock.FakeClock()) as made:
        yield made


async def _stored(store, **changes):
    made = Stored(store, bench.recipe(**changes))
    await store.create(made.start)
    return made


async def test_a_pointer_leads_to_its_receipt(store):
    """The receipt contains the payload with the hash in the slot."""
    stored = await _stored(store)

    assert await stored.run() is RunState.DONE
    slot = stored.view.board.slots["found"]
    receipt = await store.find_receipt(slot.receipt_id)
    assert receipt["payload"] == bench.PAYLOADS["finder"]
    assert receipt["tool"] == "finder"
    assert plain.sha256(plain.canonical(receipt["payload"])) == slot.sha256


async def test_a_resume_after_a_broken_reference_asks_the_tool_again(store):
    """The step that filled the slot is repeated, since its result may be complete now."""
    stored = await _stored(store)
    stored.tables.payloads["finder"] = {"files": []}

    assert await stored.run() is RunState.FAILED
    stored.tables.payloads["finder"] = bench.PAYLOADS["finder"]
    assert await stored.resume() is RunState.DONE
    assert stored.repeated() == ["find", "read", "brief", "draft", "dod.close"]


async def test_a_resume_after_a_failed_agent_repeats_that_agent(store):
    """Finished steps are not repeated."""
    stored = await _stored(store)
    stored.tables.replies["draft"] = "ABSTAIN: too little to go on"

    assert await stored.run() is RunState.FAILED
    stored.tables.replies["draft"] = "Dusk came early."
    assert await stored.resume() is RunState.DONE
    assert stored.repeated() == ["draft", "dod.close"]


async def test_a_resume_after_a_failed_check_repeats_its_agent(store):
    """A failed check on a slot repeats the agent that wrote it; issues of the first attempt do not disturb."""
    checks = [{"check": "slot_field_equals", "slot": "prose", "field": "pass", "expected": True}]
    stored = await _stored(store, dod=checks)

    assert await stored.run() is RunState.FAILED
    stored.tables.replies["draft"] = '{"pass": true}'
    assert await stored.resume() is RunState.DONE
    assert stored.repeated() == ["draft", "dod.close"]


async def test_a_resume_after_a_missing_file_looks_again(store):
    """A resume after a failed check on a file repeats only that check."""
    stored = await _stored(store, dod=[{"check": "file_exists", "path": "made-later.md"}])

    assert await stored.run() is RunState.FAILED
    stored.tables.files["made-later.md"] = "here"
    assert await stored.resume() is RunState.DONE
    assert stored.repeated() == ["dod[0]", "dod.close"]


async def test_a_resume_from_a_step_repeats_it_and_all_after(store):
    """A person may resume from a step before the failure."""
    stored = await _stored(store, dod=[{"check": "file_exists", "path": "none.md"}])
    await stored.run()

    assert await stored.resume("brief") is RunState.FAILED
    assert stored.repeated() == ["brief", "draft", "dod[0]", "dod[0].issue"]


@pytest.mark.parametrize("key", ["find", "read", "brief", "draft", "commit.prose", "dod[0]"])
async def test_a_crash_in_any_step_repeats_that_step_alone(store, key):
    """After a power loss in any step a restart continues behind the last line, with the same slots."""
    changes = {
        "outputs": [{"slot": "prose", "path": "out.md"}],
        "dod": [{"check": "file_exists", "path": "out.md"}],
    }
    whole = await _stored(store, **changes)
    await whole.run()
    doomed = memory_store.MemoryStore(clock=clock.FakeClock())
    await doomed.start()
    stored = await _stored(doomed, **changes)
    stored.tables.dying = key
    with pytest.raises(bench.Died):
        await stored.run()
    stored.tables.dying = None
    async with doomed.crashed(lose_unsynced=True) as left:
        stored.store = left

        assert await stored.run() is RunState.DONE
        keys = ["find", "read", "brief", "draft", "commit.prose", "dod[0]"]
        assert stored.repeated() == sorted([*keys, key], key=keys.index)
        tried = {record.key: record.receipt_id for record in (await left.read(stored.start.run_id)).records}
        slots = {
            name: dataclasses.replace(slot, receipt_id=tried[slot.key]) for name, slot in whole.view.board.slots.items()
        }
        assert dict(stored.view.board.slots) == slots
