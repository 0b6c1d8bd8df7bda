"""Reading a run that is being written: its files are read one after the other, maybe not at one moment."""

from __future__ import annotations

import pytest

from app import clock
from app.domain.decisions import DecisionKind
from app.domain.states import RunState
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.memory_store import MemoryStore
from app.storage.runs import authority
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN

STEPS, CONTROL = f"runs/{RUN}/steps.jsonl", f"runs/{RUN}/control.jsonl"


class Moving(MemoryDisk):
    """A disk on which a run continues after each read of one of its journals."""

    def __init__(self) -> None:
        super().__init__()
        self.to_come: list[dict[str, bytes]] = []

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        content = super().read(path, offset, size)
        if path in (STEPS, CONTROL) and self.to_come:
            self.becomes(self.to_come.pop(0))
        return content

    def becomes(self, files: dict[str, bytes]) -> None:
        """Replace the content of files."""
        for path, content in files.items():
            self.write(path, content, sync=True)


async def lived() -> tuple[Moving, list[dict[str, bytes]]]:
    """Return the disk of a run that failed, was resumed and failed again, and its journals at each moment."""
    disk, moments = Moving(), list[dict[str, bytes]]()
    store = MemoryStore(clock=clock.FakeClock(), disk=disk)
    await store.start(serve=False)
    await store.create(store_harness.start())
    log = await store.open(RUN)

    async def do(change: object) -> None:
        await change  # type: ignore[misc]
        moments.append({path: disk.read(path) for path in (STEPS, CONTROL)})

    await do(log.decide(DecisionKind.TAKEN, {}))
    for key in "ab":
        await do(log.append_step(store_harness.step(key)))
        await do(log.decide(DecisionKind.ENDED, {"status": "failed"}))
        await do(log.decide(DecisionKind.RESUMED, {"dead": []}))
    await do(log.append_step(store_harness.step("c")))
    await do(log.decide(DecisionKind.ENDED, {"status": "done"}))
    await log.close()
    await store.close()
    return disk, moments


@pytest.mark.parametrize("begin", range(9))
@pytest.mark.parametrize("stride", [1, 2, 3])
async def test_a_run_written_between_reads_is_not_damaged(begin: int, stride: int) -> None:
    """A sound run is never reported as damaged, even if lines are written between the reads of its two journals."""
    disk, moments = await lived()
    disk.becomes(moments[begin])
    disk.to_come = moments[begin + stride :: stride]
    found = authority.read(disk, RUN)

    assert found.damages == ()


async def test_damage_stays_damage() -> None:
    """Damage that is found again in a second read is reported."""
    disk, moments = await lived()
    disk.becomes({STEPS: moments[0][STEPS]})
    found = authority.read(disk, RUN)

    assert [place.file for place in found.damages] == ["steps.jsonl"] * len(found.damages)
    assert found.damages
    assert found.decisions.status is RunState.DONE
