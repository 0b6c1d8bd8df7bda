"""All kinds of store, the one in memory with and without a power cut."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from app.storage.index.sql import migrations, sessions
from app.storage.postgres.database import Database
from app.storage.postgres.ownership import Ownership
from tests import postgres_server
from tests.conformance import store_harness

FILES = ["folder", "memory", "memory after a power cut"]
"""Kinds of store that keep runs in files."""


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the content of an index without rows, since migrating costs more than most of the tests."""
    file = tmp_path_factory.mktemp("migrated") / "index.db"
    engine = sessions.connect(f"sqlite:///{file}")
    migrations.migrate(engine)
    engine.dispose()
    return file.read_bytes()


@pytest.fixture(scope="session")
def databases(postgres: postgres_server.Postgres) -> Callable[[], str]:
    """Return a function that creates a database with the tables of an empty store, and returns its address."""
    postgres.execute("CREATE DATABASE store_template")
    ownership = Ownership(Database(postgres.url_of("store_template")), {})
    ownership.acquire("store_of_all_tests")
    ownership.close()
    numbers = itertools.count()

    def made() -> str:
        name = f"store_{next(numbers)}"
        postgres.execute(f"CREATE DATABASE {name} TEMPLATE store_template STRATEGY file_copy")
        return postgres.url_of(name)

    return made


@pytest.fixture
def url(postgres: postgres_server.Postgres, request: pytest.FixtureRequest) -> str:
    """Return the address of a new database."""
    return postgres.new_database(request.node.nodeid)


@pytest.fixture
async def make(tmp_path: Path, migrated: bytes, url: str) -> AsyncIterator[store_harness.Make]:
    """Yield a function that creates the store of a process of its own, and close all of these stores at the end."""
    made: list[store_harness.PostgresStoreHarness] = []

    def make(*, shared: bool = True) -> store_harness.PostgresStoreHarness:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(store_harness.PostgresStoreHarness(folder, migrated, url, shared=shared, index_url=url))
        return made[-1]

    yield make
    await store_harness.close_all(made)


@pytest.fixture(params=FILES)
async def file_harness(
    request: pytest.FixtureRequest, tmp_path: Path, migrated: bytes
) -> AsyncIterator[store_harness.StoreHarness]:
    """Yield a harness for a store of files, and close the store at the end."""
    async with _closing(_of_files(request.param, tmp_path, migrated)) as made:
        yield made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests marked `blobs` also on stores with object storage."""
    if {"harness", "migrated"} <= set(metafunc.fixturenames):
        objects = ["objects", "postgres with objects"] if metafunc.definition.get_closest_marker("blobs") else []
        shared = pytest.param("postgres, shared", marks=pytest.mark.slow)
        metafunc.parametrize("harness", [*FILES, "postgres", shared, *objects], indirect=True)


@pytest.fixture
async def harness(
    request: pytest.FixtureRequest, tmp_path: Path, migrated: bytes
) -> AsyncIterator[store_harness.StoreHarness]:
    """Yield a harness for a store, and close the store at the end."""
    made: store_harness.StoreHarness
    if request.param.startswith("postgres"):
        url, shared = request.getfixturevalue("databases")(), "shared" in request.param
        made = store_harness.PostgresStoreHarness(tmp_path, migrated, url, shared=shared)
        if "objects" in request.param:
            pytest.importorskip("obstore", reason="the extra objects is not installed")
            made.keep_objects(f"file://{tmp_path}/objects")
    else:
        made = _of_files(request.param, tmp_path, migrated)
    async with _closing(made):
        yield made


def _of_files(kind: str, place: Path, migrated: bytes) -> store_harness.StoreHarness:
    if kind == "folder":
        return store_harness.FolderStoreHarness(place, migrated)
    if kind == "objects":
        pytest.importorskip("obstore", reason="the extra objects is not installed")
        return store_harness.ObjectStoreHarness(place, migrated, f"file://{place}/objects")
    return store_harness.MemoryStoreHarness(lose_unsynced="power" in kind)


@contextlib.asynccontextmanager
async def _closing(made: store_harness.StoreHarness) -> AsyncIterator[store_harness.StoreHarness]:
    yield made
    made.faults.lift()
    await made.store.close()
