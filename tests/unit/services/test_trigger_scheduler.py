"""The scheduler of triggers: a fault of one trigger does not stop the others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from app import clock, errors
from app.domain import triggers
from app.engine import aio
from app.services.triggers import drops, firing, repository, scheduler
from tests.unit.services import memory_documents
from tests.unit.worker import recording

AT = "2026-02-10T14:30:00.000Z"
OLD = "20260210T142900Z-aaaaaa"
NEW = "20260210T143000Z-bbbbbb"
FAULTS = [errors.JournalCorrupt, errors.Conflict, errors.Unreadable, errors.InterruptionFault]


class Runs:
    """A store and use cases in which one trigger has an unfinished run with a fault."""

    def __init__(self, fault: BaseException) -> None:
        self.fault: BaseException | None = fault
        self.started: list[str] = []

    async def find_repeated(self, *_: object) -> None:
        """Find no run."""

    async def unfinished_under(self, prefix: str) -> list[str]:
        """Return the run of the first trigger."""
        return [OLD] if "first" in prefix else []

    async def cancel(self, *_: object) -> None:
        """Fail until the test removes the fault."""
        if self.fault is not None:
            raise self.fault

    async def ended(self, run_id: str) -> None:
        """Fail until the test removes the fault."""
        await self.cancel(run_id)

    async def start(self, request: Any, **_: object) -> SimpleNamespace:
        """Start a run."""
        self.started.append(request.labels["of"])
        return SimpleNamespace(run_id=NEW, existed=False)


async def _scheduler(
    runs: Any, time: clock.FakeClock, overlap: triggers.Overlap
) -> tuple[scheduler.TriggerScheduler, recording.RecordingProbes]:
    unused: Any = None
    kept = repository.TriggerRepository(memory_documents.MemoryDocuments(), unused)
    for name in ("first", "second"):
        await kept.put(
            triggers.Trigger(
                trigger_id=name,
                name=name,
                kind="webhook",
                recipe_id="quick",
                overlap=overlap,
                webhook=triggers.Webhook(),
                labels={"of": name},
                created_at=AT,
                updated_at=AT,
                cursor=AT,
                waiting=(triggers.Waiting(occurrence="one", due_at=AT),),
            )
        )
    probes = recording.RecordingProbes()
    fires = firing.Firing(repository=kept, runs=runs, store=runs, clock=time)
    made = scheduler.TriggerScheduler(
        repository=kept, firing=fires, triggers=unused, engine=runs, clock=time, probes=probes
    )
    return made, probes


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_run_that_cannot_be_cancelled_holds_up_its_own_trigger_alone(fault: type[BaseException]) -> None:
    """A run that cannot be cancelled delays only its own trigger; other triggers start runs and remain ready."""
    time, runs = clock.FakeClock(), Runs(fault())
    tested, probes = await _scheduler(runs, time, "cancel")
    tested.start()
    try:
        assert tested._task is not None
        await aio.wait_first(probes.passed("triggers.idle"), asyncio.shield(tested._task))
        tested.check()
        before, runs.fault = list(runs.started), None
        time.advance(scheduler._RETRY_SECONDS)
        await probes.passed("triggers.idle", 2)
    finally:
        await tested.stop()

    assert before == ["second"]
    assert runs.started == ["second", "first"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_wait_for_a_run_that_cannot_be_read_is_repeated(fault: type[BaseException]) -> None:
    """A queued trigger whose run cannot be awaited tries again after a pause."""
    time, runs = clock.FakeClock(), Runs(fault())
    tested, _ = await _scheduler(runs, time, "queue")
    wait = asyncio.create_task(tested._awaited(OLD))
    await asyncio.sleep(0)
    time.advance(scheduler._RETRY_SECONDS)
    await wait

    assert tested._repository.changed.is_set()


def test_files_of_a_trigger_that_is_gone_are_forgotten() -> None:
    """Only existing triggers keep the times since when their files are unchanged."""
    settling = drops.Settling()
    for trigger_id in ("kept", "gone"):
        settling.settled(trigger_id, {"a.md": "1"}, 0, 5)
    settling.keep({"kept"})

    assert [settling.settled(each, {"a.md": "1"}, 5, 5) for each in ("kept", "gone")] == [{"a.md": "1"}, {}]


async def test_a_trigger_of_a_kind_that_a_later_version_added_is_left_alone() -> None:
    """After a downgrade, a trigger of an unknown kind keeps its file, and the other triggers are read."""
    unused: Any = None
    known = triggers.Trigger(
        trigger_id="known", name="k", kind="webhook", recipe_id="r", created_at=AT, updated_at=AT, cursor=AT
    )
    documents = memory_documents.MemoryDocuments()
    for name, kind in (("known", "webhook"), ("newer", "queue")):
        await documents.put(name, known.to_json() | {"trigger_id": name, "kind": kind})

    assert await repository.TriggerRepository(documents, unused).all() == [known]
    assert (await documents.read_all()).documents["newer"]["kind"] == "queue"
