"""Both kinds of store, the one in memory with and without a power cut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.storage.index.sql import migrations, sessions
from tests.conformance import store_harness


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Give an index without rows, since migrating costs more than most of the tests."""
    file = tmp_path_factory.mktemp("migrated") / "index.db"
    engine = sessions.connect(f"sqlite:///{file}")
    migrations.migrate(engine)
    engine.dispose()
    return file.read_bytes()


@pytest.fixture(params=["folder", "memory", "memory after a power cut"])
async def harness(
    request: pytest.FixtureRequest, tmp_path: Path, migrated: bytes
) -> AsyncIterator[store_harness.StoreHarness]:
    """Give a harness for a store, and close the store in the end."""
    made: store_harness.StoreHarness
    if request.param == "folder":
        made = store_harness.FolderStoreHarness(tmp_path, migrated)
    else:
        made = store_harness.MemoryStoreHarness(lose_unsynced="power" in request.param)
    yield made
    made.faults.lift()
    await made.store.close()
