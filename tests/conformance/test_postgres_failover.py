"""A database whose server dies: its replica takes over, and the store continues there with all confirmed data."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from app import errors
from app.domain.states import RunState
from app.storage.index import index_port
from app.storage.index.sql.index import SqlIndex
from tests import postgres_server
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, PostgresStoreHarness
from tests.postgres_server import Postgres

AT = "2026-02-10T14:31:00.000Z"


@pytest.fixture
def pair() -> Iterator[tuple[Postgres, Postgres]]:
    """Yield a server and its replica."""
    with postgres_server.replicated() as made:
        yield made


def read_only(url: str, *, on: bool) -> None:
    """Make a database refuse writes as a standby does, or accept them again."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET default_transaction_read_only = {on}")
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


async def test_an_address_that_leads_to_a_standby_is_waited_for(
    tmp_path: Path, migrated: bytes, databases: Callable[[], str]
) -> None:
    """Writes that a standby refuses succeed once the address leads to a server that accepts writes."""
    url = databases()
    harness = PostgresStoreHarness(tmp_path, migrated, url)
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    read_only(url, on=True)
    writing = [
        asyncio.ensure_future(log.append_step(store_harness.step("b"))),
        asyncio.ensure_future(asyncio.to_thread(harness.files().write, "issues/x.json", b"{}", sync=True)),
    ]
    done, _ = await asyncio.wait(writing, timeout=0.3)
    read_only(url, on=False)
    await asyncio.gather(*writing)
    found = [record.key for record in (await harness.store.read(RUN)).records]
    await harness.store.close()

    assert not done
    assert found == ["a", "b"]


async def test_a_server_that_takes_no_writes_is_named_and_its_start_repeated(
    tmp_path: Path, migrated: bytes, databases: Callable[[], str]
) -> None:
    """A start with a read-only server fails with advice about the standby or the setting, and with a code to retry."""
    url = databases()
    read_only(url, on=True)
    harness = PostgresStoreHarness(tmp_path, migrated, url)
    with pytest.raises(errors.ConfigurationError, match="takes no writes: if it leads to a standby") as refused:
        await harness.open()

    assert refused.value.code == "store_away"
    assert "otherwise default_transaction_read_only is on" in str(refused.value)
    assert "pass" not in str(refused.value)


async def test_an_index_leaves_a_standby(databases: Callable[[], str]) -> None:
    """The index replaces a connection to a standby, and its address may name several servers."""
    first, _, name = databases().rpartition("/")
    index = SqlIndex(url := f"{first},127.0.0.1:1/{name}?target_session_attrs=any")
    await index.start()
    read_only(f"{first}/{name}", on=True)
    row = index_port.row_of(store_harness.start(), RunState.PENDING, AT, name=RUN, owner="service")
    with pytest.raises(errors.StorageFault, match="read-only"):
        await index.put_run(row)
    with psycopg.connect(f"{first}/{name}", autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
    await index.put_run(row)
    found = await index.get_run(RUN)
    await index.close()

    assert found is not None
    assert "," in url


@pytest.mark.slow
async def test_a_replica_that_is_promoted_has_everything(
    tmp_path: Path, migrated: bytes, pair: tuple[Postgres, Postgres]
) -> None:
    """A promoted replica has all steps of the dead server, and records a step that ends meanwhile once, as the last."""
    primary, replica = pair
    primary.execute("CREATE DATABASE moved")
    url = postgres_server.address_of(pair, "moved")
    harness = PostgresStoreHarness(tmp_path, migrated, url, index_url=url)
    log = await store_harness.begun(harness)
    records = [await log.append_step(store_harness.step(f"s{number}")) for number in range(20)]
    primary.stop(signal.SIGKILL)
    waiting = asyncio.ensure_future(log.append_step(store_harness.step("during")))
    replica.execute("SELECT pg_promote()")
    records.append(await waiting)
    await store_harness.end(log)
    await log.close()
    store = await harness.crash()
    found = list((await store.read(RUN)).records)
    verified = await store.maintenance.verify(RUN)
    with contextlib.suppress(errors.StorageFault):
        await store.close()

    assert found == records
    assert verified["ok"]


async def test_a_server_without_free_connections_is_waited_for(
    tmp_path: Path, migrated: bytes, databases: Callable[[], str]
) -> None:
    """Store and index report a server with too many connections, with codes that a start waits for."""
    url = databases()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS crowded")
        connection.execute("CREATE ROLE crowded LOGIN PASSWORD 'crowded' CONNECTION LIMIT 0")
        where = f"{connection.info.host}:{connection.info.port}/{connection.info.dbname}"
    crowded = f"postgresql://crowded:crowded@{where}"
    with pytest.raises(errors.ConfigurationError, match="too many connections") as of_store:
        await PostgresStoreHarness(tmp_path, migrated, crowded).open()
    index = SqlIndex(crowded)
    with pytest.raises(errors.ConfigurationError, match="too many connections") as of_index:
        await index.start()
    await index.close()

    assert (of_store.value.code, of_index.value.code) == ("store_away", "index_away")
