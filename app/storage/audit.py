"""The audit log on a disk: one file of lines, each sealed to the one before, as in journals.

A page merges the log with the orders to runs, which the index has from their journals.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app import clock
from app.domain import audit, authors, plain
from app.domain.authors import RunOrder
from app.storage import layout
from app.storage.disk import disk_port, worker_threads
from app.storage.disk.disk_port import Disk
from app.storage.disk.worker_threads import AsyncFolderLock
from app.storage.journal import chain
from app.storage.storage_context import StorageContext

ANCHOR = plain.labelled_sha256(b"control-room audit 1")  # Anchor that the first line is sealed to.

_PART_BYTES = 256 * 1024
_PAGE_BYTES = 4 * 1024 * 1024
_LARGEST_DETAILS = 16 * 1024


class AuditLog:
    """`audit.AuditLog` over a file that several processes append to."""

    def __init__(self, context: StorageContext, prepare: Callable[[], Awaitable[None]]) -> None:
        """Make the log.

        Args:
            prepare: Updates the index from the folders of runs before a page is read.
        """
        self._context = context
        self._prepare = prepare
        self._folder = AsyncFolderLock(context.disk, layout.AUDIT, context.workers)
        self._is_named = False

    async def append(
        self,
        author: authors.Author | None,
        action: str,
        target: str,
        details: Mapping[str, plain.Json] | None = None,
    ) -> None:
        change = audit.Change(action=action, target=target, make=_nothing, details=details or {})
        await self.change(author, lambda: change)

    async def change(self, author: authors.Author | None, check: Callable[[], audit.Change | None]) -> None:
        """Record a change and make it; meanwhile, no other change is checked or made."""
        await worker_threads.uncut(self._change(author, check))

    async def page(self, query: audit.AuditQuery) -> tuple[list[audit.AuditEntry], audit.AuditCursor | None]:
        await self._prepare()
        logged = await self._context.workers.run(lambda: _part(self._context.disk, query))
        return _merged(query, logged, await self._context.index.list_orders(query))

    async def _change(self, author: authors.Author | None, check: Callable[[], audit.Change | None]) -> None:
        async with self._folder.hold():
            try:
                await self._context.workers.run(lambda: self._made(author, check()))
            except OSError as error:
                raise self._context.disk_health.failed(layout.AUDIT_ORDERS, error) from error

    def _made(self, author: authors.Author | None, change: audit.Change | None) -> None:
        if change is None:
            return
        details = dict(change.details)
        if len(plain.encode(details)) > _LARGEST_DETAILS:
            details = {"left_out": f"more than {_LARGEST_DETAILS} bytes"}
        at = clock.stamp(self._context.clock.now())
        fields = {"at": at, "action": change.action, "target": change.target, "details": details}
        self._write(plain.encode(fields | authors.facts(author)))
        change.make()

    def _write(self, fields: bytes) -> None:
        disk, reach = self._context.disk, self._context.probes.reach
        number, head = _end(disk)
        line = chain.seal(fields, batch=number, prev=head)
        reach("storage.audit.before_append")
        disk_port.append_whole(disk, layout.AUDIT_ORDERS, line.content, sync=True)
        if not self._is_named:
            # The process that made the file may have died before its name was durable.
            disk.sync_folder(layout.AUDIT)
            self._is_named = True
        reach("storage.audit.after_append")


def check(files: Disk) -> tuple[int, str, int | None, str | None]:
    """Return the number of sound lines of the log, its state, and its first bad line with the reason."""
    found = chain.read(files.read(layout.AUDIT_ORDERS), ANCHOR)
    count = len(found.lines)
    match found.integrity:
        case chain.Integrity.WHOLE:
            return count, "ok", None, None
        case chain.Integrity.TORN:
            return count, "torn", count + 1, found.reason
        case _:
            return count, "corrupt", count + 1, found.reason.replace("start.json", "the beginning of the log")


def _end(disk: Disk) -> tuple[int, str]:
    """Cut off an unconfirmed end, and return the number of lines of the log and the hash of the last."""
    if disk.has_file(layout.AUDIT_ORDERS) and disk.size(layout.AUDIT_ORDERS) > disk_port.LARGEST_BYTES:
        # The log is an authority: unlike a projection, it is not moved aside for a new file.
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), layout.AUDIT_ORDERS)
    size = disk_port.mend(disk, layout.AUDIT_ORDERS)
    if not size:
        return 0, ANCHOR
    raw, fields = _last(disk, size)
    if fields is not None:
        return int(fields["batch"]) + 1, plain.labelled_sha256(raw)
    found = chain.read(disk.read(layout.AUDIT_ORDERS), ANCHOR)
    if found.integrity is chain.Integrity.TORN:
        disk.cut(layout.AUDIT_ORDERS, found.end)
        return len(found.lines), found.head
    # Damaged lines are kept for verification to find; the log continues after them.
    return disk.read(layout.AUDIT_ORDERS).count(b"\n"), plain.labelled_sha256(raw)


def _last(disk: Disk, size: int) -> tuple[bytes, dict[str, Any] | None]:
    begin = max(0, size - _PART_BYTES)
    tail = disk.read(layout.AUDIT_ORDERS, begin, size - begin)
    return tail.rstrip(b"\n").rpartition(b"\n")[2], chain.last_fields(tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The part of the log that was read, backwards."""

    end: int  # Offset at which the reading began.
    stop: int  # Offset of the first byte that was read.
    oldest: str  # Time of the oldest line that was read; empty if the log was read to its beginning.
    found: list[tuple[int, audit.AuditEntry]]
    """Matching lines, newest first, each with the offset of its first byte."""


def _part(disk: Disk, query: audit.AuditQuery) -> _Part:
    try:
        size = disk.size(layout.AUDIT_ORDERS)
    except (FileNotFoundError, NotADirectoryError):
        size = 0
    end = min(size, size if query.cursor is None else query.cursor.offset)
    found: list[tuple[int, audit.AuditEntry]] = []
    for begin, line in _backwards(disk, end):
        entry = _entry(line)
        if entry is not None and query.fits(entry):
            found.append((begin, entry))
        if entry is not None and (len(found) == query.limit or end - begin > _PAGE_BYTES):
            return _Part(end=end, stop=begin, oldest=entry.at if begin else "", found=found)
    return _Part(end=end, stop=0, oldest="", found=found)


def _merged(
    query: audit.AuditQuery, logged: _Part, orders: Sequence[RunOrder]
) -> tuple[list[audit.AuditEntry], audit.AuditCursor | None]:
    page: list[audit.AuditEntry] = []
    lines, given = iter(logged.found), iter(orders)
    line, order = next(lines, None), next(given, None)
    end, last = logged.end, query.cursor.order if query.cursor is not None else None
    while len(page) < query.limit and (line is not None or order is not None):
        if line is not None and (order is None or line[1].at >= order.at):
            end, entry = line
            page.append(entry)
            line = next(lines, None)
        elif order is not None and (line is not None or order.at >= logged.oldest):
            last = order.place
            page.append(audit.AuditEntry.of_order(order))
            order = next(given, None)
        else:
            # Unread lines of the log may be newer.
            break
    end = logged.stop if line is None else end
    is_last = line is None and order is None and not end and len(orders) < query.limit
    return page, None if is_last else audit.AuditCursor(offset=end, order=last)


def _backwards(disk: Disk, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines before an offset, last first, each with the offset of its first byte."""
    while end > 0:
        begin = max(0, end - _PART_BYTES)
        content = disk.read(layout.AUDIT_ORDERS, begin, end - begin)
        stop = content.find(b"\n") + 1 if begin else 0
        at = len(content)
        while at > stop:
            start = content.rfind(b"\n", 0, at - 1) + 1
            yield begin + start, content[start:at]
            at = start
        # A whole part without a newline does not belong to this log.
        end = begin + stop if stop else begin


def _entry(line: bytes) -> audit.AuditEntry | None:
    fields = chain.last_fields(line)
    if fields is None:
        return None
    known = {name: str(fields.get(name, "")) for name in ("at", "action", "target")}
    details = fields.get("details")
    return audit.AuditEntry(
        number=int(fields["batch"]),
        author=authors.in_line(fields),
        details=details if isinstance(details, dict) else {},
        **known,
    )


def _nothing() -> None:
    """Change nothing; the caller of `append` makes the change."""
