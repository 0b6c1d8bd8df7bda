"""Databases of the index: the part that SQLite and database servers have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias
from urllib.parse import unquote

Parameters: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
"""Values of a statement; a sequence executes the statement once for each of its items."""


class DatabaseFault(Exception):
    """The database refuses or fails; `orig` is the exception of its driver."""

    def __init__(self, orig: object) -> None:
        super().__init__(str(orig))
        self.orig = orig


class IntegrityFault(DatabaseFault):
    """A row would break a rule of its table."""


class OperationalFault(DatabaseFault):
    """The database is busy, away or out of space."""


class ReadSession(Protocol):
    """A transaction that only reads: `reads.Connection`."""

    def rows(self, sql: str, values: Mapping[str, Any] = {}) -> Sequence[Any]:
        """Return the rows of a query whose `:name` parameters have these values."""


class WriteSession(ReadSession, Protocol):
    """A transaction that also writes; the code that opened it ends it, never a query."""

    def execute(self, sql: str, parameters: Parameters = None) -> int:
        """Execute a writing statement, and return the number of rows that it affects."""


class Database(Protocol):
    """A database that one thread uses.

    Every method raises `DatabaseFault` if the database refuses or fails.
    """

    def reading(self) -> AbstractContextManager[ReadSession]:
        """Open a transaction that only reads."""

    def writing(self, *, durable: bool = False) -> AbstractContextManager[WriteSession]:
        """Open a transaction that writes, and commit it if nothing is raised.

        Args:
            durable: Whether the committed transaction must survive a power cut.
        """

    def migrate(self) -> bool:
        """Bring the tables up to date, and return whether the database had none."""

    def close(self) -> None:
        """Close the connection."""


def url_of(path: str) -> str:
    """Return the address of an SQLite file, with % and ? encoded, which have a meaning in addresses."""
    return f"sqlite:///{path.replace('%', '%25').replace('?', '%3F')}"


def path_of(url: str) -> str | None:
    """Return the path of an SQLite file from an address as data directories use it; None for other addresses.

    Such a file needs no SQLAlchemy, whose import took a sixth of a start.
    """
    scheme, separator, path = url.partition(":///")
    is_plain = separator and scheme == "sqlite" and "?" not in path
    return unquote(path) if is_plain and path not in ("", ":memory:") else None
