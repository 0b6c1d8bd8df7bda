"""The port of documents: JSON objects in files of a folder, each replaced as a whole and durable before the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a folder of documents holds."""

    documents: Mapping[str, dict[str, Any]]  # Documents by their names.
    damaged: tuple[str, ...] = ()  # Names of files that hold no JSON object.


class Documents(Protocol):
    """Documents of one folder."""

    async def read_all(self) -> Found:
        """Return all documents.

        Raises:
            errors.Unreadable: a file cannot be read now.
        """

    async def put(self, name: str, document: Mapping[str, Any]) -> None:
        """Make or replace a document; it is durable afterwards, and once begun that ends, whatever becomes of the
        caller.

        Raises:
            errors.StorageFault: it could not be written.
        """

    async def remove(self, name: str) -> None:
        """Remove a document durably; nothing if it does not exist.

        Raises:
            errors.StorageFault: it could not be removed.
        """
