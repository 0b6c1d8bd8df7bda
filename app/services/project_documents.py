"""Project documents: settings in a file of the data directory that people change, by hand or by an order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from app import errors
from app.domain import audit, authors, plain
from app.services import faults

T = TypeVar("T")

_log = logging.getLogger(__name__)


class File(Protocol):
    """The file of a document."""

    name: str  # Its name in the data directory.

    disk: Any  # The disk that holds it.
    common: Any  # Where changes go, if all processes of a store share it.

    def renew(self) -> None:
        """Make sure that what is read next is what other processes have written last."""

    def read(self) -> Any:
        """Return the document; None if there is no file."""

    def write(self, document: plain.Json) -> None:
        """Replace the document durably."""

    def signature(self) -> tuple[int, ...] | None:
        """Return what differs whenever the file has changed; None if there is none."""


class ProjectDocument(Generic[T]):
    """A document, read again whenever its file has changed.

    Args:
        read: Makes the value of the document, or raises `errors.InputRefused`.
        empty: The value where there is no file.
    """

    def __init__(self, file: File, read: Callable[[Any], T], empty: T) -> None:
        self._read = read
        self._empty = empty
        self._seen: tuple[int, ...] | None = None
        self.file = file
        """The file."""
        self.value = empty
        """The value, as it was read last."""

    def look(self) -> T:
        """Return the value, read again if the file has changed; what cannot be read leaves the value before."""
        try:
            return self.check()
        except errors.ControlRoomError as error:
            _log.error("what was read last still counts: %s", error.message, extra={"file": self.file.name})
            return self.value

    def check(self) -> T:
        """Return the value, read again if the file has changed.

        Raises:
            errors.Conflict: `file_damaged`, it holds something else.
            errors.Unavailable: `file_unreadable`.
        """
        seen = self.file.signature()
        if seen != self._seen:
            # A fault is reported once for each state of the file.
            self._seen = seen
            try:
                self.value = self.now()
            except errors.Unavailable:
                # The next look tries again, since the fault is not in the file.
                self._seen = None
                raise
        return self.value

    def made(self, document: Any) -> T:
        """Return the value of a document.

        Raises:
            errors.InputRefused: with every flaw found.
        """
        return self._read(document)

    def now(self) -> T:
        """Return the value of the file as it is now.

        Raises:
            errors.Conflict, errors.Unavailable: as `check`.
        """
        document = self.file.read()
        if document is None:
            return self._empty
        try:
            return self._read(document)
        except errors.InputRefused as error:
            message = f"{self.file.name} in the data directory: {error.message}; mend it, or move it away"
            raise errors.Conflict(message, code="file_damaged", detail={"file": self.file.name}) from error


class DocumentOrders(Generic[T]):
    """Show and replace a document.

    Args:
        log: Audit log that each change is recorded in.
    """

    def __init__(self, document: ProjectDocument[T], log: audit.AuditLog) -> None:
        self._document = document
        self._audit = log

    def look(self) -> T:
        """Return the value, read again if the file has changed; it blocks."""
        return self._document.look()

    async def show(self) -> T:
        """Return the value of the file as it is now.

        Raises:
            errors.Conflict: `file_damaged`, the file holds something else.
            errors.Unavailable: `file_unreadable`.
        """
        return await asyncio.to_thread(self._document.now)

    async def replace(self, document: plain.Json, author: authors.Author | None) -> T:
        """Replace the document durably, and return its value, which counts at once.

        Raises:
            errors.RequestInvalid: with every flaw found.
            errors.DiskFull: it could not be written.
        """
        file = self._document.file
        # Checked before the entry is written: what is refused was never ordered.
        self._document.made(document)
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
