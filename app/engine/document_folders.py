"""Documents: the port of JSON objects in files of a folder, each replaced as a whole and durable before the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The content of a folder of documents."""

    documents: Mapping[str, dict[str, Any]]  # Documents by their names.
    damaged: tuple[str, ...] = ()  # Names of files that do not contain a JSON object.


class Documents(Protocol):
    """Documents of one folder."""

    async def read_all(self) -> Found:
        """Return all documents.

        Raises:
            errors.Unreadable: a file cannot be read now.
        """

    async def put(self, name: str, document: Mapping[str, Any]) -> None:
        """Create or replace a document durably; once begun, the write completes even if the caller is cancelled.

        Raises:
            errors.StorageFault: the document could not be written.
        """

    async def remove(self, name: str) -> None:
        """Remove a document durably, if it exists.

        Raises:
            errors.StorageFault: the document could not be removed.
        """
