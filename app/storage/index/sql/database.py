"""Databases of the index: what those of SQLite and of servers have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias
from urllib.parse import unquote

Parameters: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
"""Values of a statement; a sequence executes it once for each."""


class DatabaseFault(Exception):
    """The database refuses or fails; `orig` is what its driver raised."""

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
    """A transaction that also writes; its opener ends it, never a query."""

    def execute(self, sql: str, parameters: Parameters = None) -> int:
        """Write, and return how many rows were concerned."""


class Database(Protocol):
    """A database, which one thread uses.

    Everything raises `DatabaseFault` where the database refuses or fails.
    """

    def reading(self) -> AbstractContextManager[ReadSession]:
        """Open a transaction that only looks."""

    def writing(self, *, durable: bool = False) -> AbstractContextManager[WriteSession]:
        """Open a transaction that writes, and commit it if nothing is raised.

        Args:
            durable: Whether it must outlive a power cut once it is committed.
        """

    def migrate(self) -> bool:
        """Bring the tables up to date, and return whether there were none."""

    def close(self) -> None:
        """Close the connection."""


def url_of(path: str) -> str:
    """Return the address of a file of SQLite; in addresses, % begins the code of a character and ? the options."""
    return f"sqlite:///{path.replace('%', '%25').replace('?', '%3F')}"


def path_of(url: str) -> str | None:
    """Return the path of a file of SQLite, as addresses of data directories name theirs; None for any other address.

    These need no SQLAlchemy, which took a sixth of a start.
    """
    scheme, separator, path = url.partition(":///")
    is_plain = separator and scheme == "sqlite" and "?" not in path
    return unquote(path) if is_plain and path not in ("", ":memory:") else None
