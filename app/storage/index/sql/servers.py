"""A database behind SQLAlchemy as the index: Postgres, and SQLite files whose tables need migrations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sqlalchemy import exc

from app.storage.index.sql import database, migrations, sessions


class Server:
    """`Database` over an SQLAlchemy engine."""

    def __init__(self, url: str) -> None:
        """Raises:
        database.DatabaseFault: the address is invalid.
        ImportError: its driver is not installed.
        """
        with _translated():
            self._engine = sessions.connect(url)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sessions.ReadSession]:
        with _translated(), sessions.reading(self._engine) as session:
            yield session

    @contextlib.contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[sessions.WriteSession]:
        with _translated(), sessions.writing(self._engine, durable=durable) as session:
            yield session

    def migrate(self) -> bool:
        with _translated():
            return migrations.migrate(self._engine)

    def close(self) -> None:
        self._engine.dispose()


def path_of(url: str) -> str | None:
    """Return the path of the SQLite file that an address names; None for any other address."""
    try:
        parsed = sessions.parsed(url)
    except exc.ArgumentError:
        return None
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:")
    return parsed.database if is_file else None


def shown(url: str) -> str:
    """Return an address without its password, for error messages."""
    try:
        return sessions.parsed(url).render_as_string(hide_password=True)
    except exc.ArgumentError:
        return "address"


def masked(url: str, reason: str) -> str:
    """Return the reason of a failure with the address's password masked."""
    try:
        password = sessions.parsed(url).password if "://" in url else None
    except exc.ArgumentError:
        return reason
    return reason.replace(str(password), "***") if password else reason


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except exc.IntegrityError as error:
        raise database.IntegrityFault(error.orig) from error
    except exc.OperationalError as error:
        raise database.OperationalFault(error.orig) from error
    except exc.SQLAlchemyError as error:
        raise database.DatabaseFault(getattr(error, "orig", None) or error) from error
