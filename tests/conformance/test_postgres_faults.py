"""Faults of a database: confirmed data exists once despite faults of connection, server and ownership."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy.exc

from app import errors
from app.storage import postgres_connections
from app.storage.index.sql import sessions
from app.storage.postgres import database
from app.storage.postgres.database import EPOCH_LOCK, Database, Fenced
from tests import postgres_server
from tests.conformance import store_harness
from tests.conformance.cutting_proxy import CuttingProxy
from tests.conformance.store_harness import RUN, PostgresStoreHarness, close_all
from tests.postgres_server import NOBODY, Postgres

LINES = "SELECT count(*) FROM control_room.lines WHERE journal = 'steps.jsonl'"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """Yield a server of this module's own, since its tests stop it."""
    with postgres_server.running() as made:
        yield made


@pytest.fixture
def url(server: Postgres, request: pytest.FixtureRequest) -> str:
    """Return the address of a new database."""
    return server.new_database(request.node.name)


@pytest.fixture
async def make(tmp_path: Path, migrated: bytes, url: str) -> AsyncIterator[Callable[..., PostgresStoreHarness]]:
    """Yield a function that creates a store over the database, and close all of these stores at the end."""
    made: list[PostgresStoreHarness] = []

    def make(address: str = url) -> PostgresStoreHarness:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(PostgresStoreHarness(folder, migrated, address))
        return made[-1]

    yield make
    await close_all(made)


@pytest.fixture
def proxy(url: str) -> Iterator[CuttingProxy]:
    """Yield a proxy before the server."""
    made = CuttingProxy(int(url.rpartition("/")[0].rpartition(":")[2]))
    yield made
    made.close()


def through(proxy: CuttingProxy, url: str) -> str:
    """Return the address of a database through a proxy."""
    begin, _, database = url.rpartition("/")
    return f"{begin.rpartition(':')[0]}:{proxy.port}/{database}"


def asked(url: str, statement: str) -> Any:
    """Return the first value of a query."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
        return row[0] if row else None


def until_one_waits(url: str) -> None:
    while not asked(url, "SELECT count(*) FROM pg_locks WHERE NOT granted"):
        pass


def end_sessions(url: str) -> None:
    """End every other session of the database."""
    mine = "datname = current_database() AND pid <> pg_backend_pid()"
    asked(url, f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {mine}")


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_an_unknown_outcome_is_looked_up(
    make: Callable[..., PostgresStoreHarness], proxy: CuttingProxy, url: str, cut: Any
) -> None:
    """If a connection is cut just before or after its commit, each line is recorded once, in order, and sealed."""
    harness = make(through(proxy, url))
    log = await store_harness.begun(harness)
    first = await log.append_step(store_harness.step("a"))
    proxy.arm(cut)
    second, third = await asyncio.gather(*(log.append_step(store_harness.step(key)) for key in "bc"))
    last = await log.append_step(store_harness.step("d"))

    assert proxy.cuts == 1
    assert asked(url, LINES) == 4
    store = await harness.crash()
    assert list((await store.read(RUN)).records) == [first, second, third, last]
    assert (await store.maintenance.verify(RUN))["ok"]


@pytest.mark.parametrize("asks", ["store", "index"])
async def test_a_machine_that_is_gone_keeps_no_reader_waiting(
    monkeypatch: pytest.MonkeyPatch, proxy: CuttingProxy, url: str, asks: str
) -> None:
    """A query to a vanished machine fails soon; the kernel alone would repeat it for a quarter of an hour."""
    options = {**postgres_connections.OPTIONS, "tcp_user_timeout": 500, "connect_timeout": 2}
    monkeypatch.setattr(postgres_connections, "OPTIONS", options)
    if asks == "store":
        store = Database(through(proxy, url))
        store.read(lambda cursor: cursor.execute("SELECT 1"))
        proxy.vanish()
        with pytest.raises(OSError, match="the store"):
            store.read(lambda cursor: cursor.execute("SELECT 1"))
        store.close()
    else:
        engine = sessions.connect(through(proxy, url))
        with engine.connect() as connection:
            proxy.vanish()
            with pytest.raises(sqlalchemy.exc.OperationalError):
                connection.exec_driver_sql("SELECT 1")
        engine.dispose()


def test_options_of_an_address_count(url: str) -> None:
    """Options in the database address take precedence over the defaults."""
    address = f"{url}?connect_timeout=17"
    engine = sessions.connect(address)
    with Database(address).connect() as store, engine.connect() as index:
        told = [store.info.get_parameters(), index.connection.driver_connection.info.get_parameters()]  # type: ignore[union-attr]
    engine.dispose()

    assert [each["connect_timeout"] for each in told] == ["17", "17"]
    assert [each["tcp_user_timeout"] for each in told] == ["11000", "11000"]


async def test_ended_sessions_are_begun_again(make: Callable[..., PostgresStoreHarness], url: str) -> None:
    """After the server ends its sessions, the store loses neither a line nor a read, and keeps its ownership."""
    harness = make()
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    epoch = asked(url, "SELECT epoch FROM control_room.store")
    end_sessions(url)
    await log.append_step(store_harness.step("b"))
    end_sessions(url)
    loaded = await harness.store.read(RUN)

    assert [record.key for record in loaded.records] == ["a", "b"]
    assert asked(url, "SELECT epoch FROM control_room.store") == epoch


def test_a_new_connection_that_is_lost_is_replaced(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read succeeds although the server ends the new session before its first statement."""
    prepare, ended = database._prepare, list[int]()

    def lose(connection: psycopg.Connection[Any]) -> None:
        if not ended:
            ended.append(connection.info.backend_pid)
            asked(url, f"SELECT pg_terminate_backend({ended[0]}, 60000)")
        prepare(connection)

    monkeypatch.setattr(database, "_prepare", lose)
    tested = Database(url)
    (pid,) = tested.read(lambda cursor: cursor.execute("SELECT pg_backend_pid()").fetchone()) or (0,)
    tested.close()

    assert pid not in (0, *ended)


async def test_a_server_that_restarts_is_waited_for(
    make: Callable[..., PostgresStoreHarness], url: str, server: Postgres
) -> None:
    """A step that ends while the server is down is recorded once after the server is back."""
    harness = make()
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    server.stop(signal.SIGQUIT)
    waiting = asyncio.ensure_future(log.append_step(store_harness.step("b")))
    server.start()
    await waiting

    assert asked(url, LINES) == 2


async def test_a_service_that_only_reads_notices_that_the_server_is_away(
    tmp_path: Path, migrated: bytes, url: str, server: Postgres
) -> None:
    """A store that only reads reports a write fault while the server is down, and none once it is back."""
    harness = PostgresStoreHarness(tmp_path, migrated, url, shared=True)
    store, heard = await harness.open(), asyncio.Event()
    assert store.commit_listener is not None
    store.commit_listener.start(lambda run_id: heard.set())
    await asyncio.wait_for(heard.wait(), 30)
    server.stop(signal.SIGQUIT)
    async with asyncio.timeout(30):
        while (fault := await store.write_fault()) is None:  # noqa: ASYNC110 - the store sends no event
            await asyncio.sleep(0.01)
    server.start()
    async with asyncio.timeout(30):
        while await store.write_fault() is not None:  # noqa: ASYNC110 - the store sends no event
            await asyncio.sleep(0.01)
    await store.commit_listener.stop()
    await close_all([harness])

    assert fault.code == "database_away"


async def test_a_deadlock_is_repeated(make: Callable[..., PostgresStoreHarness], url: str) -> None:
    """The store repeats a transaction that the server aborts to end a deadlock, and records each line once."""
    harness = make()
    log = await store_harness.begun(harness)
    await harness.store.create(store_harness.start("other"))
    other = await harness.store.open("other")
    first, second = (f"SELECT 1 FROM control_room.runs WHERE place = 'runs/{run}' FOR UPDATE" for run in (RUN, "other"))
    with psycopg.connect(url) as rival:
        # Only the deadlock check of the store's own session can find the deadlock in time.
        rival.execute("SET deadlock_timeout = '1min'")
        rival.execute(second)
        together = asyncio.gather(*(one.append_step(store_harness.step("a")) for one in (log, other)))
        await asyncio.to_thread(until_one_waits, url)
        await asyncio.to_thread(rival.execute, first)
        rival.rollback()
    await together

    assert asked(url, LINES) == 2
    assert asked(url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") >= 1


async def test_of_three_writers_only_the_last_owner_writes(make: Callable[..., PostgresStoreHarness], url: str) -> None:
    """Of three processes that believe they own a run, only the newest owner can append to it."""
    logs = []
    for number in range(3):
        harness = make()
        store = await harness.open()
        if number == 0:
            await store.create(store_harness.start())
        log = await store.open(RUN)
        logs.append(log)
        await log.append_step(store_harness.step(f"by {number}"))
        # The others get no message: they notice the loss when they write.
        end_sessions(url)
    results = await asyncio.gather(
        *(log.append_step(store_harness.step(f"late {n}")) for n, log in enumerate(logs)), return_exceptions=True
    )

    assert [isinstance(result, errors.StorageFault) for result in results] == [True, True, False]
    assert "taken over by another process" in str(results[0])
    assert [record.key for record in (await store.read(RUN)).records] == ["by 0", "by 1", "by 2", "late 2"]
    assert (await store.maintenance.verify(RUN))["ok"]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_a_stricter_default_of_the_database_opens_no_gap_in_the_fence(
    make: Callable[..., PostgresStoreHarness], url: str, isolation: str
) -> None:
    """A write that waits for a takeover sees the new epoch and is refused, at every default isolation level."""
    await make().open()
    database = Database(url)
    with psycopg.connect(url) as rival:
        rival.execute(f"ALTER DATABASE {rival.info.dbname} SET default_transaction_isolation TO '{isolation}'")
        rival.commit()
        epoch = asked(url, "SELECT epoch FROM control_room.store")
        rival.execute(f"SELECT pg_advisory_xact_lock({EPOCH_LOCK})")
        rival.execute("UPDATE control_room.store SET epoch = epoch + 1")
        writing = asyncio.ensure_future(asyncio.to_thread(database.write, epoch, lambda cursor: "written"))
        await asyncio.to_thread(until_one_waits, url)
        rival.commit()
        with pytest.raises(Fenced):
            await writing
    database.close()


async def test_a_session_without_its_lock_cannot_append(make: Callable[..., PostgresStoreHarness], url: str) -> None:
    """A session that has lost its lock cannot write to a store that a later owner has opened."""
    first = make()
    log = await store_harness.begun(first)
    ownership = first.store._ownership
    assert ownership is not None
    ownership.transact(lambda cursor: cursor.execute("SELECT pg_advisory_unlock_all()"))
    second = await make().open()
    later = await second.open(RUN)
    await later.append_step(store_harness.step("a"))
    with pytest.raises(errors.StorageFault, match="later owner"):
        await log.append_step(store_harness.step("b"))
    with pytest.raises(Fenced):
        first.files().write("issues/x.json", b"{}", sync=True)

    assert [record.key for record in (await second.read(RUN)).records] == ["a"]


async def test_a_full_disk_of_the_server_loses_nothing(
    make: Callable[..., PostgresStoreHarness], url: str, server: Postgres
) -> None:
    """On a full disk a step is refused; with free space again, later steps are recorded and earlier ones are kept."""
    with _small_disk(server) as fill:
        name = url.rpartition("/")[2]
        server.execute(f"ALTER DATABASE {name} SET default_tablespace = small")
        harness = make()
        log = await store_harness.begun(harness)
        first = await log.append_step(store_harness.step("a"))
        with fill():
            with pytest.raises(errors.StorageFault, match="no space is left"):
                for number in range(200):
                    await log.append_step(store_harness.step(f"big {number}", os.urandom(20_000).hex()))
            full = await harness.store.write_fault() is None
            before = asked(url, LINES)
        await log.heal()
        last = await log.append_step(store_harness.step("b"))
        loaded = await harness.store.read(RUN)
        await harness.store.close()
        server.execute(f"DROP DATABASE {name} (FORCE)")

    assert not full
    assert (loaded.records[0], loaded.records[-1]) == (first, last)
    assert len(loaded.records) == before + 1


@contextlib.contextmanager
def _small_disk(server: Postgres) -> Iterator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """Create a tablespace of a few megabytes, and yield a function that fills it."""
    folder = Path(tempfile.mkdtemp(prefix="small-", dir="/tmp"))
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size=24m,uid={NOBODY},gid={NOBODY}", "small", str(folder)],
        capture_output=True,
        check=False,
    )
    if not mounted or mounted.returncode:
        folder.rmdir()
        pytest.skip("no small disk can be mounted here: that needs root and the right to mount")
    space = folder / "space"
    space.mkdir(mode=0o700)
    os.chown(space, NOBODY, NOBODY)

    @contextlib.contextmanager
    def fill() -> Iterator[None]:
        ballast = folder / "ballast"
        with ballast.open("wb") as file, contextlib.suppress(OSError):
            free = os.statvfs(folder)
            file.write(bytes(free.f_bavail * free.f_frsize - 512 * 1024))
        yield
        ballast.unlink()

    server.execute(f"CREATE TABLESPACE small LOCATION '{space}'")
    try:
        yield fill
        server.execute("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)
        with contextlib.suppress(OSError):
            folder.rmdir()
