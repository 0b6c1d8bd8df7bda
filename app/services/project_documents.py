"""Project documents: settings in a file of the data directory, which people change by hand or by an order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from app import errors
from app.domain import audit, authors, plain
from app.services import faults

T = TypeVar("T")

_log = logging.getLogger(__name__)


class File(Protocol):
    """The file of a document."""

    name: str  # Name of the file in the data directory.

    def renew(self) -> None:
        """Make sure that the next read returns the last write of other processes."""

    def read(self) -> plain.Json:
        """Return the document; None if the file does not exist."""

    def write(self, document: plain.Json) -> None:
        """Replace the document durably."""

    def signature(self) -> tuple[int, ...] | None:
        """Return a value that differs whenever the file has changed; None if it does not exist."""


class ProjectDocument(Generic[T]):
    """A document, read again whenever its file has changed.

    Args:
        parse: Returns the value of a document, or raises `errors.InputRefused` with every flaw.
        empty: The value without a file.
    """

    def __init__(self, file: File, parse: Callable[[plain.Json], T], empty: T) -> None:
        self._empty = empty
        self._seen: tuple[int, ...] | None = None
        self.file = file
        """The file."""
        self.parse = parse
        """Returns the value of a document, or raises `errors.InputRefused` with every flaw."""
        self.value = empty
        """The value at the last read."""

    def value_or_last(self) -> T:
        """Return the value, read again if the file has changed; an unreadable file leaves the previous value."""
        try:
            return self.check()
        except errors.ControlRoomError as error:
            _log.error("what was read last still counts: %s", error.message, extra={"file": self.file.name})
            return self.value

    def check(self) -> T:
        """Return the value, read again if the file has changed.

        Raises:
            errors.Conflict: `file_damaged`, the file contains something else.
            errors.Unavailable: `file_unreadable`.
        """
        seen = self.file.signature()
        if seen != self._seen:
            # A fault is reported only once for each state of the file.
            self._seen = seen
            try:
                self.value = self.read()
            except errors.Unavailable:
                # The next call tries again, since the fault is not in the file.
                self._seen = None
                raise
        return self.value

    def read(self) -> T:
        """Return the value of the file as it is now.

        Raises:
            errors.Conflict, errors.Unavailable: as `check`.
        """
        document = self.file.read()
        if document is None:
            return self._empty
        try:
            return self.parse(document)
        except errors.InputRefused as error:
            message = f"{self.file.name} in the data directory: {error.message}; fix it, or move it away"
            raise errors.Conflict(message, code="file_damaged", detail={"file": self.file.name}) from error


class DocumentOrders(Generic[T]):
    """Shows and replaces a document.

    Args:
        log: Audit log that records each change.
    """

    def __init__(self, document: ProjectDocument[T], log: audit.AuditLog) -> None:
        self._document = document
        self._audit = log

    def value_or_last(self) -> T:
        """Return the value, read again if the file has changed; it blocks."""
        return self._document.value_or_last()

    async def show(self) -> T:
        """Return the value of the file as it is now.

        Raises:
            errors.Conflict: `file_damaged`, the file contains something else.
            errors.Unavailable: `file_unreadable`.
        """
        return await asyncio.to_thread(self._document.read)

    async def replace(self, document: plain.Json, author: authors.Author | None) -> T:
        """Replace the document durably, and return its value, which takes effect at once.

        Raises:
            errors.RequestInvalid: names every flaw.
            errors.WriteFailed: the file could not be written.
        """
        file = self._document.file
        # Checked before the entry is written, since a refused change is not an order.
        self._document.parse(document)
        facts = {"sha256": plain.sha256(plain.canonical(document))}
        change = audit.Change(
            action=f"{file.name.partition('.')[0]}.changed",
            target=file.name,
            make=lambda: file.write(document),
            details=facts,
        )
        with faults.as_errors():
            await self._audit.change(author, lambda: change)
        return await asyncio.to_thread(self._document.check)
