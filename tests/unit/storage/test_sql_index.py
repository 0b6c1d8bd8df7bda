"""The index in a database: its migrations, its constraints, and its behaviour where SQLite differs."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from app import clock, errors, resources
from app.domain import issues, states
from app.engine import stores
from app.storage.data_directory import DataDirectory
from app.storage.index import index_port, reads
from app.storage.index.index_port import IndexedRun
from app.storage.index.sql import database, migrations, sessions
from app.storage.index.sql import tables as models
from app.storage.index.sql.index import SqlIndex
from tests.conformance import store_harness

AT = "2026-02-10T14:30:00.000Z"


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[SqlIndex]:
    """Return an index over a new file."""
    made = SqlIndex(f"sqlite:///{tmp_path / 'index.db'}")
    await made.start()
    yield made
    await made.close()


def row(name: str = "r1", status: states.RunState = states.RunState.PENDING, **facts: Any) -> IndexedRun:
    """Return a run's row."""
    return index_port.row_of(store_harness.start(name, **facts), status, AT, name=name, owner="service")


def schema(connection: sqlalchemy.Connection) -> set[str]:
    """Return every table and index of the database, without spaces and quotes."""
    rows = connection.exec_driver_sql(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> 'alembic_version'"
    )
    return {"".join(sql.replace('"', "").split()).lower() for (sql,) in rows}


def modes(folder: Path) -> dict[str, int]:
    """Return the permission bits of the files in a folder."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def migrated(path: Path) -> sqlalchemy.Engine:
    """Return a database that migrations have made."""
    engine = sessions.connect(f"sqlite:///{path}")
    migrations.migrate(engine)
    return engine


def test_models_equal_a_migrated_database(tmp_path: Path) -> None:
    """Tables, columns, constraints and indexes of the models equal those of a migrated database."""
    engine, twin = migrated(tmp_path / "a.db"), sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'b.db'}")
    models.METADATA.create_all(twin)
    with engine.connect() as connection, twin.connect() as other:
        differences = compare_metadata(MigrationContext.configure(connection), models.METADATA)
        tables = {line for line in schema(connection) if line.startswith("createindex")}
        wanted = {line for line in schema(other) if line.startswith("createindex")}
        checks = [sqlalchemy.inspect(found).get_check_constraints("runs") for found in (connection, other)]
    engine.dispose()
    twin.dispose()

    assert differences == []
    assert tables == wanted
    assert sorted(map(str, checks[0])) == sorted(map(str, checks[1]))
    assert len(checks[0]) == 4


def test_the_published_statements_equal_the_migrations(tmp_path: Path) -> None:
    """The statements that `scripts/publish_index.py` wrote for a new file are those of the migrations."""
    engine = sessions.connect(f"sqlite:///{tmp_path / 'a.db'}")
    with sessions.writing(engine) as session:
        migrations.upgrade(session.connection)
        made = migrations.statements_of(session.connection)
    engine.dispose()

    assert (resources.bundled("migrations") / migrations.NEW).read_text(encoding="utf-8") == made


def test_the_newest_migration_is_known() -> None:
    """One migration is the newest, and the program names it, so that a start need not search for it."""
    scripts = ScriptDirectory(str(resources.bundled("migrations")))

    assert scripts.get_heads() == [migrations.HEAD]


def test_migrations_can_be_repeated_and_taken_back(tmp_path: Path) -> None:
    """A second start has no migration to do; a downgrade leaves no table behind."""
    from alembic import command
    from alembic.config import Config

    engine = migrated(tmp_path / "a.db")
    again = migrations.migrate(engine)
    config = Config()
    config.set_main_option("script_location", str(resources.bundled("migrations")))
    with sessions.writing(engine) as session:
        config.attributes["connection"] = session.connection
        command.downgrade(config, "base")
    with engine.connect() as connection:
        left = sqlalchemy.inspect(connection).get_table_names()
    engine.dispose()

    assert not again
    assert left == ["alembic_version"]


def test_every_table_and_index_can_be_made_in_postgres() -> None:
    """Every table and index can be made in Postgres, with the conditions of partial indexes."""
    dialect = postgresql.dialect()
    for table in models.METADATA.tables.values():
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=dialect))
        for found in table.indexes:
            text = str(CreateIndex(found).compile(dialect=dialect))
            assert ("WHERE" in text) == (
                found.name in ("ix_runs_unfinished", "ix_runs_uncounted", "ix_run_labels_undated")
            )


@pytest.mark.parametrize(
    "values",
    [
        {"status": "finished"},
        {"status": "done", "completed_at": None},
        {"status": "running", "completed_at": AT},
        {"owner": "nobody"},
        {"priority": 101},
        {"priority": -101},
    ],
)
async def test_the_database_repeats_the_rules(made: SqlIndex, tmp_path: Path, values: dict[str, Any]) -> None:
    """The database refuses invalid rows, whichever program writes them."""
    await made.put_run(row())
    with sqlite3.connect(tmp_path / "index.db") as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute(f"UPDATE runs SET {', '.join(f'{name} = ?' for name in values)}", list(values.values()))


async def test_a_key_is_unique(made: SqlIndex) -> None:
    """Two runs cannot have one idempotency key; many runs can have none."""
    await made.put_run(row("r1", idempotency_key="k"))
    await made.put_run(row("r2"))
    await made.put_run(row("r3"))
    with pytest.raises(database.IntegrityFault):
        await made.put_run(row("r4", idempotency_key="k"))
    await made.add_missing([row("r5", idempotency_key="k")])

    assert await made.run_ids() == {"r1", "r2", "r3", "r5"}
    found = await made.find_key("k")
    assert found is not None
    assert found.summary.run_id == "r1"


def plans(path: Path, ask: Callable[[sessions.ReadSession], object]) -> list[str]:
    """Return how SQLite executes each statement of a query, with its values bound as in production."""
    asked: list[tuple[str, Any]] = []
    engine = sessions.connect(f"sqlite:///{path}")
    sqlalchemy.event.listen(engine, "before_cursor_execute", lambda *heard: asked.append((heard[2], heard[3])))
    with sessions.reading(engine) as session:
        ask(session)
    engine.dispose()
    with sqlite3.connect(path) as connection:
        explained = [(f"EXPLAIN QUERY PLAN {text}", values) for text, values in asked if text.startswith("SELECT")]
        return ["; ".join(line[3] for line in connection.execute(*each)) for each in explained]


async def test_the_unfinished_are_found_by_their_own_index(made: SqlIndex, tmp_path: Path) -> None:
    """The queries for unfinished runs read the partial index, and recovery's query needs no sort."""
    asked = (reads.list_unfinished, _list_keyed, _find_busy)
    listed, keyed, busy = (plans(tmp_path / "index.db", ask)[0] for ask in asked)

    assert "ix_runs_unfinished" in listed
    assert "ix_runs_unfinished" in keyed
    assert "ix_runs_unfinished" in busy
    assert "TEMP B-TREE" not in listed


def _list_keyed(session: sessions.ReadSession) -> list[stores.RunSummary]:
    return reads.list_unfinished(session, "trigger:t:")


def _find_busy(session: sessions.ReadSession) -> str | None:
    return reads.find_busy(session, "r")


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        ({}, "ix_runs_newest"),
        ({"status": "done"}, "ix_runs_status"),
        ({"recipe_id": "r"}, "ix_runs_recipe"),
        ({"status": "failed", "recipe_id": "r"}, "ix_runs_recipe_status"),
        ({"label": ("team", "a")}, "ix_run_labels_value"),
        ({"label": ("team", "a"), "status": "done", "recipe_id": "r"}, "ix_run_labels_value"),
        ({"label": ("team", "a"), "status": "running"}, "ix_runs_status"),
        ({"session_id": "s"}, "ix_runs_session"),
        ({"session_id": "s", "status": "failed", "recipe_id": "r"}, "ix_runs_session"),
        ({"session_id": "s", "status": "done", "parent_run_id": "r0"}, "ix_runs_session"),
        ({"session_id": "s", "status": "waiting", "recipe_id": "r"}, "ix_runs_status"),
        ({"session_id": "s", "label": ("team", "a"), "status": "done"}, "ix_runs_session"),
    ],
)
@pytest.mark.parametrize("span", [{}, {"created_after": AT, "created_before": "2026-02-10T15:00:00.000Z"}])
@pytest.mark.parametrize("cursor", [None, (AT, "r1")])
async def test_a_page_is_read_where_it_begins(
    made: SqlIndex,
    tmp_path: Path,
    filters: dict[str, Any],
    index: str,
    span: dict[str, Any],
    cursor: tuple[str, str] | None,
) -> None:
    """For any query, the first page and a late one are read from an index in the order of the list."""
    query = stores.RunQuery(**filters, **span, cursor=cursor)
    plan = plans(tmp_path / "index.db", lambda session: reads.list_runs(session, query))[0]

    assert f"INDEX {index} " in f"{plan} "
    assert "TEMP B-TREE" not in plan
    assert ("(created_at,run_id)<(?,?)" in plan) == (cursor is not None)


async def test_labels_of_the_release_before_are_listed(made: SqlIndex, tmp_path: Path) -> None:
    """A label written without its run's instant gets it at the next start, and is found in its place."""
    await made.put_run(row(labels={"team": "a"}))
    await made.close()
    with sqlite3.connect(tmp_path / "index.db") as connection:
        connection.execute("UPDATE run_labels SET created_at = NULL")
    again = SqlIndex(f"sqlite:///{tmp_path / 'index.db'}")
    await again.start()
    found = await again.list_runs(stores.RunQuery(label=("team", "a"), cursor=("2026-12-01T00:00:00.000Z", "z")))
    await again.close()

    assert [run.run_id for run in found] == ["r1"]


async def test_issues_of_the_release_before_are_marked(made: SqlIndex, tmp_path: Path) -> None:
    """A row that an earlier release has written is marked to be read again from its file."""
    await made.close()
    with sqlite3.connect(tmp_path / "index.db") as connection:
        connection.execute(
            "INSERT INTO issues (issue_id, run_id, title, status, created_at) VALUES ('iss_1', NULL, 'x', 'open', NULL)"
        )
    again = SqlIndex(f"sqlite:///{tmp_path / 'index.db'}")
    await again.start()
    known = await again.issue_rows()
    await again.put_issues([issues.summary({"issue_id": "iss_1", "title": "y", "created_at": AT})], doubtful=True)
    await again.put_issues([issues.summary({"issue_id": "iss_1", "title": "z", "created_at": AT})], doubtful=True)
    found = await again.list_issues(issues.IssueQuery())
    await again.close()

    assert known == {"iss_1": True}
    assert [(one.title, one.created_at) for one in found] == [("y", AT)]


async def test_an_index_survives_its_process(tmp_path: Path) -> None:
    """Rows, labels and receipts survive closing and reopening; only the first start is new."""
    news, found = [], None
    for _ in range(2):
        made = SqlIndex(f"sqlite:///{tmp_path / 'index.db'}")
        news.append(await made.start())
        if news == [True]:
            await made.put_run(row(labels={"a": "b"}))
        found = await made.get_run("r1")
        await made.close()

    assert news == [True, False]
    assert found == row(labels={"a": "b"})


@pytest.mark.parametrize("name", ["My%20Project", "100%", "a?b", "a#b;c=d&e@f:g"])
async def test_a_data_directory_may_have_any_name(tmp_path: Path, name: str) -> None:
    """A data directory may have any name, even with characters that have a meaning in a database's address."""
    directory = DataDirectory(tmp_path / name, clock=clock.FakeClock(), ids=clock.RandomIds())
    directory.prepare()
    made = SqlIndex(directory.index_url())
    await made.start()
    await made.put_run(row())
    await made.close()
    with sqlite3.connect(directory.index_file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'later'")
    again = SqlIndex(directory.index_url())
    await again.start()
    found = await again.get_run("r1")
    await again.close()

    assert found == row()
    assert os.listdir(tmp_path) == [name]


async def test_the_file_is_its_owners_alone(made: SqlIndex, tmp_path: Path) -> None:
    """The database and its side files are 0600."""
    await made.put_run(row())

    assert modes(tmp_path) == {"index.db": 0o600, "index.db-wal": 0o600, "index.db-shm": 0o600}


async def test_a_busy_database_is_waited_for(made: SqlIndex, tmp_path: Path) -> None:
    """While another process writes, a row waits without blocking the event loop."""
    other = sqlite3.connect(tmp_path / "index.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(made.put_run(row()))
    for _ in range(1000):
        await asyncio.sleep(0)
    waited = not writing.done()
    other.execute("COMMIT")
    other.close()
    await writing

    assert waited
    assert await made.run_ids() == {"r1"}


@pytest.mark.parametrize("content", [b"this is no database" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
async def test_a_damaged_index_is_made_anew(tmp_path: Path, content: bytes) -> None:
    """A file that is not a database is put aside, and the store reads its folders again."""
    file = tmp_path / "index.db"
    file.write_bytes(content)
    made = SqlIndex(f"sqlite:///{file}")
    new = await made.start()
    await made.put_run(row())
    rows = await made.run_ids()
    await made.close()

    assert new
    assert rows == {"r1"}
    assert (tmp_path / "index.db.damaged").read_bytes() == content


async def test_an_index_of_a_later_version_is_used_as_it_is(tmp_path: Path) -> None:
    """An earlier release works on the tables of a later one, which only added to them."""
    file = tmp_path / "index.db"
    made = SqlIndex(f"sqlite:///{file}")
    await made.start()
    await made.close()
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '20990101_later'")
        connection.execute("ALTER TABLE runs ADD COLUMN later TEXT")
    made = SqlIndex(f"sqlite:///{file}")
    new = await made.start()
    await made.put_run(row())
    found = await made.list_runs(stores.RunQuery())
    await made.close()

    assert not new
    assert [run.run_id for run in found] == ["r1"]


@pytest.mark.parametrize(
    "url", ["nonsense", "sqlite:////none/index.db", "oracle+none://u:secret@h/d", "sqlite:////proc"]
)
async def test_an_unusable_index_address_is_a_configuration_error(url: str) -> None:
    """A wrong address is a configuration error in one sentence, without its password."""
    made = SqlIndex(url)
    with pytest.raises(errors.ConfigurationError) as caught:
        await made.start()
    await made.close()

    assert caught.value.code == "index_unusable"
    assert "secret" not in caught.value.message


async def test_a_database_that_is_away_is_named() -> None:
    """An unreachable database has its own error, without its password."""
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        made = SqlIndex(f"postgresql://u:secret@127.0.0.1:{port}/d")
        with pytest.raises(errors.ConfigurationError) as caught:
            await made.start()
        await made.close()

    assert caught.value.code == "index_away"
    assert f"the index postgresql://u:***@127.0.0.1:{port}/d cannot be reached" in caught.value.message
    assert "secret" not in caught.value.message


async def test_a_driver_that_is_not_installed_is_named() -> None:
    """An index whose driver is missing names the package that would help."""
    made = SqlIndex("oracle://u:secret@h/d")
    with pytest.raises(errors.ConfigurationError, match="the package oracledb, is not installed"):
        await made.start()
    await made.close()


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("postgresql://u@h/d", "postgresql+psycopg"),
        ("postgres://u@h/d", "postgresql+psycopg"),
        ("postgresql+asyncpg://u@h/d", "postgresql+asyncpg"),
        ("sqlite:///d.db", "sqlite"),
    ],
)
def test_postgres_has_the_driver_of_its_extra(given: str, driver: str) -> None:
    """A Postgres address without a driver means the driver of the extra; any other address stays unchanged."""
    meant = sessions.address(given)

    assert meant.drivername == driver
    assert meant.set(drivername=given.partition(":")[0]) == sqlalchemy.make_url(given)


async def test_a_query_of_a_closed_index_is_a_fault(tmp_path: Path) -> None:
    """A query after the close is a fault and not a crash."""
    made = SqlIndex(f"sqlite:///{tmp_path / 'index.db'}")
    await made.start()
    await made.close()
    with pytest.raises(errors.StorageFault):
        await made.run_ids()


async def test_receipts_are_noted_twice_without_harm(made: SqlIndex) -> None:
    """A known place is replaced by the newer one."""
    place = index_port.ReceiptPlace(receipt_id="rcpt_a", session_id="s", run_id="r1", offset_bytes=1)
    await made.add_receipts([place])
    moved = dataclasses.replace(place, offset_bytes=2)
    await made.add_receipts([moved, dataclasses.replace(place, receipt_id="rcpt_b")])
    await made.add_receipts([])

    assert await made.find_receipt("rcpt_a") == moved
    assert await made.find_receipt("rcpt_b") is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-02-10T14:30:00Z", AT),
        ("2026-02-10T15:30:00.0004+01:00", AT),
        ("2026-02-10T14:30:00", "2026-02-10T14:30:00"),
        ("yesterday, or the day before", "yesterday, or the day be"),
    ],
)
def test_instants_have_one_form(text: str, expected: str) -> None:
    """Instants are stored in a form that sorts as text; any other text is cut to its column's size."""
    assert index_port.instant(text) == expected
