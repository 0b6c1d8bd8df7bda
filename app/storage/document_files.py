"""Documents on a disk: JSON objects in files of a folder, which is created with the first of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from app.domain import plain
from app.engine import document_folders as ports
from app.storage import layout
from app.storage.disk import disk_port, worker_threads
from app.storage.storage_context import StorageContext

_SUFFIX = ".json"

_log = logging.getLogger(__name__)


class Documents:
    """`documents.Documents` in a folder of a data directory.

    Args:
        folder: Path relative to the data directory; its parent exists.
    """

    def __init__(self, context: StorageContext, folder: str) -> None:
        self._context = context
        self._folder = folder

    async def read_all(self) -> ports.Found:
        return await self._context.workers.run(self._found)

    async def put(self, name: str, document: Mapping[str, Any]) -> None:
        """Make or replace a document."""
        content = plain.encode(document) + b"\n"
        await worker_threads.uncut(self._write(lambda: self._replace(name, content)))

    async def remove(self, name: str) -> None:
        await worker_threads.uncut(self._write(lambda: self._removed(name)))

    async def _write(self, job: Callable[[], None]) -> None:
        try:
            await self._context.workers.run(job)
        except OSError as error:
            raise self._context.disk_health.failed(self._folder, error) from error

    def _found(self) -> ports.Found:
        documents, damaged = dict[str, dict[str, Any]](), list[str]()
        for file in self._context.disk.names(self._folder):
            if file.startswith(".") or not file.endswith(_SUFFIX):
                continue
            try:
                value = json.loads(self._context.disk.read(f"{self._folder}/{file}"))
            except FileNotFoundError:
                continue
            except (OSError, ValueError, RecursionError) as error:
                value = error
            if isinstance(value, dict):
                documents[file.removesuffix(_SUFFIX)] = value
            else:
                _log.error("the file %s/%s is not a JSON object; it is left unchanged", self._folder, file)
                damaged.append(file.removesuffix(_SUFFIX))
        return ports.Found(documents=documents, damaged=tuple(damaged))

    def _replace(self, name: str, content: bytes) -> None:
        disk, reach = self._context.disk, self._context.probes.reach
        if disk_port.make_folder(disk, self._folder):
            disk.sync_folder(self._folder.rpartition("/")[0])
        disk_port.replace(disk, self._path(name), content, sync=True, reach=reach, at="storage.document")

    def _removed(self, name: str) -> None:
        disk, reach = self._context.disk, self._context.probes.reach
        if disk.has_file(self._path(name)):
            reach("storage.document.before_remove")
            disk.remove(self._path(name))
            disk.sync_folder(self._folder)
            reach("storage.document.after_remove")

    def _path(self, name: str) -> str:
        return f"{self._folder}/{layout.file_name(name)}{_SUFFIX}"
