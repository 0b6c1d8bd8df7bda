"""
Thousands of session plans on a real disk.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from app.engine.plans import PlanQuery
from app.storage import layout
from app.storage.disk import Disk
from tests.unit.storage import lives

MANY = 5_000


def written(place: Path, count: int) -> None:
    """
    Write plans as a person does, each a second newer than the one before.
    """
    for number in range(count):
        folder = place / layout.PLANS / f"sp_{number:04}"
        folder.mkdir(parents=True)
        at = f"2026-02-10T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
        plan = {"session_id": folder.name, "created_at": at, "tasks": [{"id": 1, "description": "Do it"}]}
        (folder / layout.PLAN).write_text(json.dumps(plan), encoding="utf-8")


class Counting:
    """
    A disk that counts what is asked of it.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self._disk, name)


async def test_thousands_are_listed_without_being_read_again(tmp_path: Path) -> None:
    """A list of five thousand plans reads each file once, and after that only what has changed."""
    written(tmp_path, MANY)
    store = lives.store_in(tmp_path)
    await store.start()
    try:
        means = store.plans._means
        counting = Counting(means.disk)
        object.__setattr__(means, "disk", counting)
        newest = await store.plans.list(PlanQuery(limit=1))
        first, counting.asked = counting.asked, Counter()
        everything = await store.plans.list(PlanQuery(limit=MANY))
        second = counting.asked
    finally:
        await store.close()

    assert [each.session_id for each in newest] == [f"sp_{MANY - 1:04}"]
    assert [each.session_id for each in everything] == [f"sp_{number:04}" for number in reversed(range(MANY))]
    assert (first["read"], second["read"]) == (MANY, 0)
    assert second["signature"] <= MANY + 1
