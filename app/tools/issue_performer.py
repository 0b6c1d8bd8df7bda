"""Perform operations on issues: open them, and close those whose cause is gone."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from app import clock, errors, printable
from app.domain import issues, operations, plain, records, runs
from app.engine import ports

KINDS = (operations.OpenIssue.kind, operations.CloseFindings.kind, operations.CloseFailedChecks.kind)
"""Kinds of operations that this performer carries out."""

FINDING = "finding"  # Kind of issues that are made from findings.

_PAGE = 1000


class IssuePerformer:
    """Write issue records. Their ids are derived, so that a repeated try finds its own issue."""

    def __init__(self, kept: issues.IssueStore, clock: clock.Clock, project: Path) -> None:
        self._kept = kept
        self._clock = clock
        self._project = project

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of an `operations.OpenIssue`, `CloseFindings` or `CloseFailedChecks`."""
        operation = call.operation
        if isinstance(operation, operations.OpenIssue):
            return await self._open(call, operation)
        if isinstance(operation, operations.CloseFindings):
            closed = [name async for name in self._close_findings(call, operation)]
        else:
            assert isinstance(operation, operations.CloseFailedChecks)
            closed = [name async for name in self._close_checks(call, operation)]
        return records.Result(output={"closed": closed}, summary=f"{printable.counted(len(closed), 'issue')} closed")

    async def _open(self, call: ports.Call, operation: operations.OpenIssue) -> records.Result:
        run, facts = call.run, plain.plain(operation.facts)
        name, recipe_id = issue_id(run.run_id, call.key), None
        if operation.identity is not None:
            recipe_id, workspace = run.recipe_id, self._workspace(call)
            name = finding_id(workspace, recipe_id, operation.identity)
            facts |= {"identity": {**operation.identity, "workspace": workspace}}
        await self._kept.open(
            issues.made(
                name,
                self._now(),
                title=operation.title,
                body=operation.body,
                kind=str(facts.get("kind") or issues.KIND),
                run_id=run.run_id,
                session_id=run.session_id,
                receipts=list(operation.receipts),
                facts=facts,
                key=call.key,
                severity=operation.severity,
                recipe_id=recipe_id,
            )
        )
        return records.Result(output={"issue_id": name}, summary=plain.preview(operation.title))

    async def _close_findings(self, call: ports.Call, operation: operations.CloseFindings) -> AsyncIterator[str]:
        run, workspace, found = call.run, self._workspace(call), frozenset(operation.found)
        note = f"Not found any more by the run {run.run_id}."

        def is_gone(known: issues.Issue) -> bool:
            return not _is_newer(known, run) and _is_about(known, workspace, operation)

        def change(known: issues.Issue | None) -> issues.Issue | None:
            # Check again inside the change: a person may have edited the issue since it was listed.
            gone = known is not None and is_gone(known)
            return issues.closed(known, self._now(), run.run_id, note) if gone else known

        async for summary in self._findings(run.recipe_id):
            was_closed = summary.status == "closed" and summary.updated_at < run.created_at
            if summary.issue_id in found or was_closed or not await self._holds(summary.issue_id, is_gone):
                continue
            if await self._closed(summary.issue_id, change, run.run_id):
                yield summary.issue_id

    async def _close_checks(self, call: ports.Call, operation: operations.CloseFailedChecks) -> AsyncIterator[str]:
        run_id = call.run.run_id

        def change(known: issues.Issue | None) -> issues.Issue | None:
            return issues.closed(known, self._now(), run_id, f"The check is met now, by the run {run_id}.")

        for key in operation.keys:
            if await self._closed(issue_id(run_id, key), change, run_id):
                yield issue_id(run_id, key)

    async def _holds(self, name: str, fact: Callable[[issues.Issue], bool]) -> bool:
        # Read the issue before changing it: even a change without effect costs a sync.
        try:
            return fact(await self._kept.get(name))
        except (errors.NotFound, errors.Conflict):
            return False

    async def _closed(self, name: str, change: issues.Change, run_id: str) -> bool:
        # An issue that a try before an interruption has closed counts as well.
        try:
            left = await self._kept.change(name, change)
        except (errors.NotFound, errors.Conflict):
            return False
        return left.get("status") == "closed" and left.get("closed_by") == run_id

    async def _findings(self, recipe_id: str) -> AsyncIterator[issues.IssueSummary]:
        cursor: tuple[str, str] | None = None
        while True:
            query = issues.IssueQuery(kind=FINDING, recipe_id=recipe_id, limit=_PAGE, cursor=cursor)
            page = await self._kept.list(query)
            for summary in page:
                yield summary
            if len(page) < _PAGE:
                return
            cursor = (page[-1].created_at, page[-1].issue_id)

    def _workspace(self, call: ports.Call) -> str:
        folder = Path(os.path.abspath(call.run.working_dir))
        return folder.relative_to(self._project).as_posix() if folder.is_relative_to(self._project) else str(folder)

    def _now(self) -> str:
        return clock.stamp(self._clock.now())


def issue_id(run_id: str, key: str) -> str:
    """Return `iss_` and twenty hexadecimal digits."""
    return f"iss_{plain.sha256(f'{run_id}:{key}'.encode())[:20]}"


def finding_id(workspace: str, recipe_id: str, identity: plain.Object) -> str:
    """Return the id of a finding's issue, which is the same for every run that finds it."""
    named = {name: identity.get(name) for name in ("kind", "file", "words")}
    return f"iss_{plain.sha256(plain.canonical({**named, 'workspace': workspace, 'recipe_id': recipe_id}))[:20]}"


def _is_newer(known: issues.Issue, run: runs.RunStart) -> bool:
    # What another run has found since this run began may not have existed when this run looked.
    own = run.run_id in (known.get("run_id"), known.get("closed_by"))
    return not own and str(known.get("updated_at")) > run.created_at


def _is_about(known: issues.Issue, workspace: str, close: operations.CloseFindings) -> bool:
    """Return whether this run has read all files that a finding of this workspace is about."""
    facts: Any = known.get("facts") or {}
    identity = facts.get("identity")
    if not isinstance(identity, dict) or identity.get("workspace") != workspace:
        return False
    about = identity.get("files") or identity.get("looked_at") or ()
    return bool(about) and all(
        isinstance(path, str)
        and _covers(close.looked_at, path)
        # A finding that names no file is about all that was to be read.
        and not any(_covers((unread,), path) or _covers((path,), unread) for unread in close.left_out)
        for path in about
    )


def _covers(looked_at: tuple[str, ...], path: str) -> bool:
    return any(folder == "." or path == folder or path.startswith(f"{folder}/") for folder in looked_at)
