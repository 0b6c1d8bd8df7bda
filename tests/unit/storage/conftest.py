"""What tests of storage share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance import houses


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[houses.FolderHouse]:
    """Give a house for a store on the machine's disk."""
    made = houses.FolderHouse(tmp_path, b"")
    yield made
    made.faults.lift()
    await made.store.close()
