"""
Issues on a disk: a file for each is the truth, its row a projection that errs only towards "look again".
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any
from weakref import WeakValueDictionary

from app import errors
from app.engine import issues, plain
from app.storage import disk, layout, workers
from app.storage.disk import Disk
from app.storage.means import Means

_CHUNK = 200


class Issues:
    """
    `issues.IssueStore` over files and rows.

    Before a file is changed its row is marked, durably; a crash between file and row leaves the mark, and the next
    start reads the file again.
    """

    def __init__(self, means: Means) -> None:
        self._means = means
        self._compared = False
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def open(self, issue: issues.Issue) -> None:
        """
        Keep what a step has found.
        """
        found = plain.plain(issue)
        await self.change(found["issue_id"], lambda known: found if known is None else issues.again(known, found))

    async def put(self, issue: issues.Issue) -> None:
        """
        Write a record in place of the one of its id.
        """
        given = plain.plain(issue)
        await self.change(given["issue_id"], lambda _: given)

    async def change(self, issue_id: str, change: issues.Change) -> issues.Issue:
        """
        Change an issue, or make it; once begun that ends, whatever becomes of the caller.
        """
        return await workers.uncut(self._change(issue_id, change))

    async def get(self, issue_id: str) -> issues.Issue:
        """
        Return an issue as its file has it.
        """
        found = await self._means.workers.run(lambda: _read(self._means.disk, issue_id))
        if found is None:
            raise _unknown(issue_id)
        return issues.whole(found)

    async def list(self, query: issues.IssueQuery) -> list[issues.IssueSummary]:
        """
        Return issues, newest first.
        """
        if not self._compared:
            await self.compare()
        return await self._means.index.list_issues(query)

    async def knows_session(self, session_id: str) -> bool:
        """
        Tell whether a work session has runs, receipts or a plan.
        """
        may_have_plan = layout.can_have_plan(session_id)

        def look() -> bool:
            files = self._means.disk
            planned = may_have_plan and files.has_file(layout.plan_file(session_id))
            return files.has_folder(layout.session_folder(session_id)) or planned

        return await self._means.workers.run(look) or await self._means.index.has_session(session_id)

    async def compare(self, *, everything: bool = False) -> int:
        """
        Bring rows in line with files and return how many issues there are; files whose row is sound are not read.
        """
        index, files = self._means.index, self._means.disk
        rows = await index.issue_rows()
        names = set(await self._means.workers.run(lambda: files.names(layout.ISSUES)))
        sound = {
            issue_id for issue_id, marked in rows.items() if _name(issue_id) in names and not (marked or everything)
        }
        wanted, read = iter(sorted(names - {_name(issue_id) for issue_id in sound})), set[str]()
        while chunk := list(islice(wanted, _CHUNK)):
            found = await self._means.workers.run(partial(_summaries, files, chunk))
            await index.put_issues(found, doubtful=True)
            read |= {summary.issue_id for summary in found}
        await index.remove_issues(rows.keys() - sound - read)
        self._compared = True
        return len(sound | read)

    async def _change(self, issue_id: str, change: issues.Change) -> issues.Issue:
        # The rows of two changes must come in the order of their files.
        turn = self._turns.setdefault(issue_id, asyncio.Lock())
        async with turn:
            path = layout.issue_file(issue_id)
            existed = await self._means.workers.run(lambda: self._means.disk.has_file(path))
            if existed:
                await self._means.index.mark_issue(issue_id)
            try:
                known, left = await self._means.workers.run(lambda: self._replaced(issue_id, change, existed))
            except OSError as error:
                raise self._means.room.failed(path, error) from error
            if left is None:
                raise _unknown(issue_id)
            if left is not known or existed:
                await self._means.index.put_issues([issues.summary(left)])
            return left

    def _replaced(
        self, issue_id: str, change: issues.Change, existed: bool
    ) -> tuple[issues.Issue | None, issues.Issue | None]:
        # A new one is its maker's alone; over one that is there, other processes may come too.
        held = self._means.disk.lock(layout.ISSUES, wait=True) if existed else None
        try:
            known = _read(self._means.disk, issue_id)
            left = change(known)
            if left is None or left is known:
                return known, known
            self._write(issue_id, left)
            return known, left
        finally:
            if held is not None:
                held.release()

    def _write(self, issue_id: str, issue: issues.Issue) -> None:
        path, reach = layout.issue_file(issue_id), self._means.probes.reach
        disk.replace(self._means.disk, path, plain.encode(issue) + b"\n", sync=True, reach=reach, at="storage.issue")


def _read(files: Disk, issue_id: str) -> dict[str, Any] | None:
    try:
        issue = json.loads(files.read(layout.issue_file(issue_id)))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise _damaged(issue_id) from error
    if not isinstance(issue, dict) or issue.get("issue_id") != issue_id:
        raise _damaged(issue_id)
    return issue


def _name(issue_id: str) -> str:
    return layout.issue_file(issue_id).removeprefix(f"{layout.ISSUES}/")


def _summaries(files: Disk, names: list[str]) -> list[issues.IssueSummary]:
    return [issues.summary(issue) for issue in _issues(files, names)]


def _issues(files: Disk, names: list[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            issue = json.loads(files.read(f"{layout.ISSUES}/{name}"))
            if isinstance(issue, dict) and isinstance(issue.get("issue_id"), str) and _name(issue["issue_id"]) == name:
                yield issue


def _unknown(issue_id: str) -> errors.NotFound:
    return errors.NotFound(f"there is no issue {issue_id!r:.120}", code="issue_not_found")


def _damaged(issue_id: str) -> errors.Conflict:
    told = f"the file of the issue {issue_id!r:.120} cannot be read; nothing was changed"
    return errors.Conflict(told, code="issue_damaged", detail={"file": layout.issue_file(issue_id)})
