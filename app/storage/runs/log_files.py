"""Files under `logs/`: written as a whole, or appended to while output arrives, and read in parts."""

from __future__ import annotations

import logging

from app import errors
from app.domain import plain
from app.engine import stores
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.storage_context import StorageContext

_log = logging.getLogger(__name__)


def replace(disk: disk_port.Disk, folder: str, name: str, text: str) -> None:
    """Replace a log in a run's folder."""
    disk_port.make_folder(disk, f"{folder}/{layout.LOGS}")
    disk_port.replace(disk, _path(folder, name), text.encode("utf-8", "replace"), sync=False)


def append(disk: disk_port.Disk, folder: str, name: str, text: str) -> None:
    """Append to a log in a run's folder."""
    disk_port.make_folder(disk, f"{folder}/{layout.LOGS}")
    file = disk.append_to(_path(folder, name))
    try:
        file.write(text.encode("utf-8", "replace"))
    finally:
        file.close()


async def put_away(context: StorageContext, folder: str) -> None:
    """Move the logs of an ended run into object storage; logs that cannot be moved stay readable."""
    objects = context.objects
    if objects is not None:
        try:
            await context.workers.run(lambda: objects.put_logs_away(folder))
        except (OSError, errors.Unreadable) as error:
            _log.warning("logs stay where they were written: %s", error, extra={"file": folder})


def part(disk: disk_port.Disk, path: str, offset: int, most: int) -> stores.LogPart:
    """Return a part of a log; see `RunStore.read_log_part`."""
    signature, size_bytes = disk.signature(path), disk.size(path)
    begin = max(size_bytes + offset, 0) if offset < 0 else min(offset, size_bytes)
    content = disk.read(path, begin, most) if most else b""
    version = plain.sha256(repr(signature).encode())[:32]
    return stores.LogPart(content=content, offset=begin, size_bytes=size_bytes, version=version)


def _path(folder: str, name: str) -> str:
    return f"{folder}/{layout.LOGS}/{layout.file_name(name)}"
