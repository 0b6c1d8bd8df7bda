"""Databases of the index: an SQLite file behaves alike with and without SQLAlchemy."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.storage.index.sql import database, migrations, servers, sqlite_file


@pytest.fixture(params=["file", "server"])
def found(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[database.Database]:
    """Return a database of either kind over a new file."""
    path = str(tmp_path / "index.db")
    made: database.Database = (
        sqlite_file.SqliteFile(path) if request.param == "file" else servers.Server(f"sqlite:///{path}")
    )
    yield made
    made.close()


def ids(found: database.Database) -> list[str]:
    """Return the ids in the table."""
    with found.reading() as session:
        return [row[0] for row in session.rows("SELECT name FROM things ORDER BY name")]


@pytest.fixture
def things(found: database.Database) -> database.Database:
    """Return a database with a table of unique names."""
    with found.writing() as session:
        session.execute("CREATE TABLE things (name TEXT PRIMARY KEY, kind TEXT)")
    return found


def test_a_transaction_is_committed_whole_or_not_at_all(things: database.Database) -> None:
    """A transaction without an error is committed whole; any other leaves no row, and the next one begins anew."""
    with things.writing(durable=True) as session:
        many = session.execute("INSERT INTO things VALUES (:name, NULL)", [{"name": "a"}, {"name": "b"}])
        one = session.execute("UPDATE things SET kind = :kind WHERE name = :name", {"kind": ":x", "name": "a"})
        none = session.execute("DELETE FROM things WHERE name = 'c'")
    with pytest.raises(database.IntegrityFault, match="UNIQUE"), things.writing() as session:
        session.execute("INSERT INTO things VALUES (:name, NULL)", [{"name": "c"}, {"name": "a"}])
    with pytest.raises(KeyError), things.writing() as session:
        session.execute("INSERT INTO things VALUES ('d', NULL)")
        raise KeyError("d")

    assert (many, one, none) == (2, 1, 0)
    assert ids(things) == ["a", "b"]


def test_operational_faults_leave_the_database_usable(things: database.Database, tmp_path: Path) -> None:
    """A busy database and an unknown table are operational faults, and the database can still be used."""
    other = sqlite3.connect(tmp_path / "index.db", isolation_level=None)
    with contextlib.closing(other):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(database.OperationalFault, match="locked"), things.writing():
            pass
        other.execute("ROLLBACK")
    with pytest.raises(database.OperationalFault, match="no such table"), things.reading() as session:
        session.rows("SELECT 1 FROM elsewhere")

    assert ids(things) == []


def test_the_file_is_written_ahead_and_durably_where_that_is_asked(things: database.Database) -> None:
    """Readers never wait for writers, and a transaction is synced if it is to be durable."""
    asked = ("PRAGMA journal_mode", "PRAGMA foreign_keys", "PRAGMA synchronous")
    with things.writing(durable=True) as session:
        durable = [session.rows(sql)[0][0] for sql in asked]
    with things.writing() as session:
        usual = [session.rows(sql)[0][0] for sql in asked]

    assert durable == ["wal", 1, 2]
    assert usual == ["wal", 1, 1]


def test_new_tables_are_made_once(found: database.Database) -> None:
    """A new file gets the tables of this version, whichever way it is opened; the next start finds them."""
    made = [found.migrate() for _ in range(2)]

    assert made == [True, False]
    with found.reading() as session:
        assert session.rows("SELECT version_num FROM alembic_version")[0][0] == migrations.HEAD


@pytest.mark.parametrize(
    "make", [lambda path: sqlite_file.SqliteFile(str(path)), lambda path: servers.Server(f"sqlite:///{path}")]
)
def test_an_unusable_database_is_a_fault(make: Callable[[Path], database.Database], tmp_path: Path) -> None:
    """Each use of a damaged file, or of one that cannot be opened, is a fault of the database."""
    (tmp_path / "damaged.db").write_bytes(b"this is not a database at all, whatever its name says" * 40)
    for path, words in ((tmp_path / "damaged.db", "not a database"), (tmp_path / "no" / "index.db", "unable to open")):
        found = make(path)
        for _ in range(2):
            with pytest.raises(database.DatabaseFault, match=words):
                found.migrate()
        found.close()


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////data/index.db", "/data/index.db"),
        ("sqlite:///index.db", "index.db"),
        ("sqlite:////data/a b:c@d+e#f.db", "/data/a b:c@d+e#f.db"),
        ("sqlite:////data/a%20b.db", "/data/a b.db"),
        (database.url_of("/data/a%20b?c.db"), "/data/a%20b?c.db"),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("sqlite:////data/index.db?timeout=3", None),
        ("sqlite+pysqlite:////data/index.db", None),
        ("postgresql://ada@db/runs", None),
        ("postgresql:///runs", None),
        ("nonsense", None),
    ],
)
def test_files_are_known_by_their_address(url: str, path: str | None) -> None:
    """Addresses of files in data directories need no SQLAlchemy, which reads the same path in them."""
    assert database.path_of(url) == path
    assert path is None or servers.path_of(url) == path
