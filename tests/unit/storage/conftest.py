"""Fixtures that tests of storage share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance import store_harness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[store_harness.FolderStoreHarness]:
    """Return a harness for a store on the machine's disk."""
    made = store_harness.FolderStoreHarness(tmp_path, b"")
    yield made
    made.faults.lift()
    await made.store.close()
