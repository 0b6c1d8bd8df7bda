"""Reports of workers: all processes of the store see what each worker performs, until the worker is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest

pytest.importorskip("temporalio")

from app.clock import FakeClock
from app.domain import records
from app.engine import active_step, document_folders, driver_scheduler, open_steps
from app.storage.memory_store import MemoryStore
from app.temporal import live_reports
from tests.unit.engine import samples

RUN = "20260210T143000Z-abc123"


@pytest.fixture
def time() -> FakeClock:
    """Return a clock."""
    return FakeClock()


@pytest.fixture
async def documents(time: FakeClock) -> AsyncIterator[document_folders.Documents]:
    """Return the documents of a store."""
    async with MemoryStore(clock=time) as store:
        yield store.documents(live_reports.FOLDER)


@pytest.fixture
def make(time: FakeClock, documents: document_folders.Documents) -> Callable[[str], live_reports.LiveReports]:
    """Return a function that makes the reports of a process."""

    def make(name: str) -> live_reports.LiveReports:
        made = live_reports.LiveReports(time)
        made._name, made.documents = name, documents
        return made

    return make


def begun_step(key: str, time: FakeClock, *, output_at: float | None = None) -> active_step.ActiveStep:
    """Return a step whose attempt begins now."""
    ask = driver_scheduler.Ask(key=key, operation=samples.tool(key), place=records.Place(step_id=f"step {key}"))
    made = active_step.ActiveStep(ask=ask, history=[], idle=False)
    made.attempt, made.started_at = 1, time.now()
    made.output_at = None if output_at is None else time.now() + timedelta(seconds=output_at)
    return made


async def known(service: live_reports.LiveReports, time: FakeClock) -> dict[str, open_steps.PerformedStep]:
    """Return what a service knows after others have reported."""
    # The store is in memory: a report takes a few turns of the event loop.
    for _ in range(20):
        await asyncio.sleep(0)
    time.advance(live_reports.REPORT_SECONDS)
    for _ in range(20):
        await asyncio.sleep(0)
    return dict(await service.known())


async def test_the_newest_step_of_each_run_is_known(
    time: FakeClock, make: Callable[[str], live_reports.LiveReports]
) -> None:
    """A third process sees the steps of two workers until they end; of several steps in a run, the newest."""
    first, second, service = (make(name) for name in "abc")
    keeping = [asyncio.create_task(each.keep()) for each in (first, second)]
    with first.reported(RUN) as follow, second.reported(RUN) as other, second.reported("r2") as third:
        third(begun_step("x", time, output_at=3))
        follow(begun_step("older", time))
        time.advance(1)
        other(begun_step("newer", time))
        begun = await known(service, time)
    over = await known(service, time)
    for task in keeping:
        task.cancel()
    await asyncio.wait(keeping)

    assert {run_id: (step.key, step.step_id) for run_id, step in begun.items()} == {
        RUN: ("newer", "step newer"),
        "r2": ("x", "step x"),
    }
    assert begun["r2"].output_at == "2026-02-10T14:30:03.000Z"
    assert begun[RUN].output_at is None
    assert over == {}


async def test_a_worker_that_is_gone_is_forgotten(
    time: FakeClock, make: Callable[[str], live_reports.LiveReports], documents: document_folders.Documents
) -> None:
    """A report that is not renewed is valid for half a minute, and the next worker removes it."""
    killed, service = make("a"), make("c")
    with killed.reported(RUN) as follow:
        follow(begun_step("s", time))
        await killed._report(documents)
        before = await known(service, time)
        time.advance(30)
        after = await known(service, time)
        keeping = asyncio.create_task(make("b").keep())
        await known(service, time)
        left = (await documents.read_all()).documents
        keeping.cancel()
        await asyncio.wait([keeping])

    assert [step.key for step in before.values()] == ["s"]
    assert after == {}
    assert left == {}


@pytest.mark.parametrize(
    "document",
    [{}, {"at": 5, "steps": []}, {"at": "2026-02-10T14:30:00.000Z", "steps": 7}]
    + [{"at": "2026-02-10T14:30:00.000Z", "steps": [step]} for step in (None, {}, {"run_id": 1, "key": "k"})],
)
async def test_a_damaged_report_is_ignored(
    time: FakeClock,
    make: Callable[[str], live_reports.LiveReports],
    documents: document_folders.Documents,
    document: dict[str, object],
) -> None:
    """A damaged report is ignored, for any content of the document."""
    await documents.put("z", document)

    assert await make("c").known() == {}
    assert time.next_wake_seconds() is None
