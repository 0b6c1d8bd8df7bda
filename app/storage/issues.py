"""Issues on a disk: each file is the authority; an error of its row only causes a further read of the file."""

# A crash between file and row would leave a list that contradicts the file. So the row is marked durably before the
# file is replaced, and the new row has no mark. A start reads only files whose row is marked or missing.

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any
from weakref import WeakValueDictionary

from app import errors
from app.domain import issues, plain
from app.storage import layout
from app.storage.disk import disk_port, worker_threads
from app.storage.disk.disk_port import Disk
from app.storage.disk.worker_threads import AsyncFolderLock
from app.storage.storage_context import StorageContext

_CHUNK = 200

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Read:
    summaries: list[issues.IssueSummary] = field(default_factory=list)
    unread: dict[str, errors.Unreadable] = field(default_factory=dict)


class Issues:
    """`issues.IssueStore` over files and rows.

    The row of an issue is marked durably before its file changes; a crash in between leaves the mark, and the next
    start reads the file again. The folder's lock is held from the mark until row and file agree.
    """

    def __init__(self, context: StorageContext) -> None:
        self._context = context
        self._compared = False
        self._unread: errors.Unreadable | None = None
        self._comparing = asyncio.Lock()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._folder = AsyncFolderLock(context.disk, layout.ISSUES, context.workers)

    async def open(self, issue: issues.Issue) -> None:
        fields = plain.plain(issue)
        await self.change(fields["issue_id"], lambda known: fields if known is None else issues.again(known, fields))

    async def change(self, issue_id: str, change: issues.Change) -> issues.Issue:
        """Change or create an issue; a change that has begun finishes even if the caller is cancelled."""
        return await worker_threads.uncut(self._change(issue_id, change))

    async def get(self, issue_id: str) -> issues.Issue:
        content = await self._context.workers.run(lambda: _read(self._context.disk, issue_id))
        if content is None:
            raise _unknown(issue_id)
        return issues.whole(content)

    async def list(self, query: issues.IssueQuery) -> list[issues.IssueSummary]:
        """Return issues, newest first.

        Raises:
            errors.Unreadable: the file of an issue without a row cannot be read now.
        """
        if not self._compared:
            async with self._comparing:
                # A start may have compared them meanwhile.
                if not self._compared:
                    await self._compare(everything=False)
            if self._unread is not None:
                raise errors.Unreadable(self._unread.message, detail=self._unread.detail)
        return await self._context.index.list_issues(query)

    async def knows_session(self, session_id: str) -> bool:
        may_have_plan = layout.can_have_plan(session_id)

        def has_files() -> bool:
            files = self._context.disk
            planned = may_have_plan and files.has_file(layout.plan_file(session_id))
            return files.has_folder(layout.session_folder(session_id)) or planned

        return await self._context.workers.run(has_files) or await self._context.index.has_session(session_id)

    async def compare(self, *, everything: bool = False) -> int:
        """Update rows from files, and return the number of issues; files with an unmarked row are not read."""
        async with self._comparing:
            return await self._compare(everything=everything)

    async def _compare(self, *, everything: bool) -> int:
        index, files = self._context.index, self._context.disk
        rows = await index.issue_rows()
        names = set(await self._context.workers.run(lambda: files.names(layout.ISSUES)))
        sound = {
            issue_id for issue_id, marked in rows.items() if _name(issue_id) in names and not (marked or everything)
        }
        wanted, read = iter(sorted(names - {_name(issue_id) for issue_id in sound})), set[str]()
        self._unread, unread = None, set[str]()
        while chunk := list(islice(wanted, _CHUNK)):
            found = await worker_threads.uncut(self._read_again(chunk))
            read |= {summary.issue_id for summary in found.summaries}
            unread |= found.unread.keys()
            for name in found.unread.keys() - {_name(issue_id) for issue_id in rows}:
                self._unread = found.unread[name]
        # The row of an unreadable file is kept; the next start reads the file again.
        kept = {issue_id for issue_id in rows if _name(issue_id) in unread}
        await self._forget(rows.keys() - sound - read - kept, len(rows))
        self._compared = self._unread is None
        return len(sound | read | kept)

    async def _forget(self, gone: Set[str], listed: int) -> None:
        if not gone:
            return
        for row in await self._context.index.list_issues(issues.IssueQuery(limit=listed)):
            if row.issue_id in gone:
                message = "the issue %s was %s, and its file is gone or cannot be read"
                _log.error(message, row.issue_id, row.status, extra={"run_id": row.run_id})
        await self._context.index.remove_issues(gone)

    async def _read_again(self, names: Sequence[str]) -> _Read:
        async with self._folder.hold():
            found = await self._context.workers.run(partial(_summaries, self._context.disk, names))
            await self._context.index.put_issues(found.summaries, doubtful=True)
        return found

    async def _change(self, issue_id: str, change: issues.Change) -> issues.Issue:
        path = layout.issue_file(issue_id)
        turn = self._locks.setdefault(issue_id, asyncio.Lock())
        async with turn:
            if await self._context.workers.run(lambda: self._context.disk.has_file(path)):
                async with self._folder.hold():
                    await self._context.index.mark_issue(issue_id)
                    left = await self._replaced(issue_id, change)
                    await self._context.index.put_issues([issues.summary(left)])
            else:
                # Only its creator knows a new issue, but others can change it as soon as it exists.
                left = await self._replaced(issue_id, change)
                await self._context.index.put_issues([issues.summary(left)], doubtful=True)
            return left

    async def _replaced(self, issue_id: str, change: issues.Change) -> issues.Issue:
        try:
            left = await self._context.workers.run(lambda: self._written(issue_id, change))
        except OSError as error:
            raise self._context.disk_health.failed(layout.issue_file(issue_id), error) from error
        if left is None:
            raise _unknown(issue_id)
        return left

    def _written(self, issue_id: str, change: issues.Change) -> issues.Issue | None:
        files, reach = self._context.disk, self._context.probes.reach
        known = _read(files, issue_id)
        left = change(known)
        if left is None or left is known:
            return known
        content = plain.encode(left) + b"\n"
        disk_port.replace(files, layout.issue_file(issue_id), content, sync=True, reach=reach, at="storage.issue")
        return left


def _read(files: Disk, issue_id: str) -> dict[str, Any] | None:
    try:
        issue = json.loads(files.read(layout.issue_file(issue_id)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, RecursionError) as error:
        raise _damaged(issue_id) from error
    if not isinstance(issue, dict) or issue.get("issue_id") != issue_id:
        raise _damaged(issue_id)
    return issue


def check(files: Disk, name: str) -> str | None:
    """Return the flaw of an issue's file, given its name; None if it is sound."""
    try:
        issue = json.loads(files.read(f"{layout.ISSUES}/{name}"))
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({type(error).__name__})"
    named = isinstance(issue, dict) and isinstance(issue.get("issue_id"), str)
    return None if named and _name(issue["issue_id"]) == name else "is not the issue of its name"


def _name(issue_id: str) -> str:
    return layout.issue_file(issue_id).removeprefix(f"{layout.ISSUES}/")


def _summaries(files: Disk, names: Sequence[str]) -> _Read:
    read = _Read()
    for name in names:
        try:
            issue = json.loads(files.read(f"{layout.ISSUES}/{name}"))
        except errors.Unreadable as fault:
            read.unread[name] = fault
        except (OSError, ValueError, RecursionError):
            continue
        else:
            if isinstance(issue, dict) and isinstance(issue.get("issue_id"), str) and _name(issue["issue_id"]) == name:
                read.summaries.append(issues.summary(issue))
    return read


def _unknown(issue_id: str) -> errors.NotFound:
    return errors.NotFound(f"there is no issue {issue_id!r:.120}", code="issue_not_found")


def _damaged(issue_id: str) -> errors.Conflict:
    message = f"the file of the issue {issue_id!r:.120} cannot be read; nothing was changed"
    return errors.Conflict(message, code="issue_damaged", detail={"file": layout.issue_file(issue_id)})
