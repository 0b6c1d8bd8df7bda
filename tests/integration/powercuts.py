"""A disk in memory that loses power at a numbered operation, and stores on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from app import bootstrap
from app.crash_lab.fragile_disk import END, FragileDisk, Operation
from app.storage import memory_store
from app.storage.disk import memory_disk
from app.storage.index import memory_index


class PowerCut(FragileDisk):
    """A power loss at an operation chosen by its number, since files of runs have other names in each life."""

    def __init__(self, number: int | None = None) -> None:
        super().__init__()
        self._number = number
        self.lost_at: Operation = END

    def _meets(self, name: str, path: str) -> bool:
        met = super()._meets(name, path)
        if len(self.story) - 1 == self._number:
            self.lost_at = self.story[-1]
            self.lose_power()
        return met


def stores(disk: memory_disk.MemoryDisk) -> Callable[..., bootstrap.Store]:
    """Return a factory of stores on a disk, each with a new index."""

    def make(_kept: object, _url: str, platform: bootstrap.Platform, adopt: Any) -> bootstrap.Store:
        return memory_store.MemoryStore(
            clock=platform.clock, probes=platform.probes, adopt=adopt, disk=disk, index=memory_index.MemoryIndex()
        )

    return make


async def sweep(
    folder: str,
    step: int,
    first_life: Callable[[PowerCut], Awaitable[bool]],
    second_life: Callable[[PowerCut, bool], Awaitable[str | None]],
) -> tuple[list[str], int]:
    """Lose power at each `step`-th operation after the first in a folder.

    Return the problems, and the number of operations.

    Args:
        first_life: Works on a disk, and returns whether its work was acknowledged before the power loss.
        second_life: Starts again from the content of the disk, and returns the problems that it finds.
    """
    whole = PowerCut()
    await first_life(whole)
    first = next(number for number, each in enumerate(whole.story) if each.path.startswith(folder))
    problems = []
    for number in range(first, len(whole.story), step):
        disk = PowerCut(number)
        was_acknowledged = await first_life(disk)
        disk.lose_power()
        if (problem := await second_life(disk, was_acknowledged)) is not None:
            problems.append(f"{problem} after a loss at {number}: {disk.lost_at}")
    return problems, len(whole.story) - first
