"""Documents in memory, with calls that overlap in a fixed order."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import Any

from app.engine import document_folders


class MemoryDocuments:
    """`document_folders.Documents` of one folder; each call yields to the loop once, as a disk would."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self.reads = 0

    async def read_all(self) -> document_folders.Found:
        """Return the documents as they are when the call begins; later calls overtake the first."""
        self.reads += 1
        found = document_folders.Found(documents=copy.deepcopy(self.kept))
        for _ in range(10 if self.reads == 1 else 0):
            await asyncio.sleep(0)
        return found

    async def put(self, name: str, document: Mapping[str, Any]) -> None:
        """Store a document."""
        await asyncio.sleep(0)
        self.kept[name] = copy.deepcopy(dict(document))

    async def remove(self, name: str) -> None:
        """Remove a document."""
        await asyncio.sleep(0)
        self.kept.pop(name, None)


class NoAudit:
    """An audit log that stores no lines."""

    async def append(self, *_: object) -> None:
        """Yield to the loop once."""
        await asyncio.sleep(0)
