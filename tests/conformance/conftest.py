"""
Both kinds of store, the one in memory with and without a power cut.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance import houses


@pytest.fixture(params=["folder", "memory", "memory after a power cut"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[houses.House]:
    """
    Give a house for a store, and close the store in the end.
    """
    made: houses.House
    if request.param == "folder":
        made = houses.FolderHouse(tmp_path)
    else:
        made = houses.MemoryHouse(lose_unsynced="power" in request.param)
    yield made
    made.faults.lift()
    await made.store.close()
