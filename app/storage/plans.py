"""Session plans on a disk: each file is the authority; the content of unchanged files is cached."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar
from urllib.parse import unquote
from weakref import WeakValueDictionary

from app import clock, errors
from app.domain import plain, plan_files, plans, records
from app.storage import layout
from app.storage.disk import disk_port, worker_threads
from app.storage.disk.disk_port import Disk, Signature
from app.storage.storage_context import StorageContext

KEPT = 64  # Plans that are cached as they were last read or written.

_CHUNK = 200

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Head:
    signature: Signature
    summary: plans.PlanSummary | None


_NEW = _Head((), None)


@dataclass(frozen=True, slots=True)
class _Known:
    signature: Signature
    plan: plans.Plan


class Plans:
    """All session plans of a data directory; a process that writes them holds the lock of the data directory."""

    def __init__(self, context: StorageContext) -> None:
        self._context = context
        self._heads: dict[str, _Head] = {}
        self._unread: dict[str, errors.Unreadable] = {}
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def get(self, session_id: str) -> plans.Plan | None:
        """Return a plan from its file; None if the session has none.

        Raises:
            errors.Conflict: `plan_damaged`, its file is damaged; `flaws` name the places.
        """
        if not layout.can_have_plan(session_id):
            return None
        known = self._known.get(session_id)
        found = await self._context.workers.run(lambda: _read_if_changed(self._context.disk, session_id, known))
        if found is None:
            return None
        self._remember(found)
        return found.plan

    async def put(self, plan: plans.Plan, known: plans.Plan | None = None) -> None:
        """Replace or create a plan's file; a write that has begun finishes even if the caller is cancelled.

        Args:
            known: Plan that the file must still contain; None: any.

        Raises:
            errors.Conflict: `plan_changed`, `plan_damaged`; the file has changed, is gone, or is unreadable,
                and is not replaced.
            errors.StorageFault: the write could not be made durable; the file has its old or its new content.
        """
        await worker_threads.uncut(self._put(plan, known))

    async def try_writing(self, session_id: str) -> None:
        """Check that a plan's file could be replaced now."""
        trial = layout.plan_file(session_id).replace(f"/{layout.PLAN}", f"/.{layout.PLAN}.trial")
        try:
            await self._context.workers.run(lambda: disk_port.try_writing(self._context.disk, trial))
        except OSError as error:
            raise self._context.disk_health.failed(trial, error) from error

    async def remove(self, session_id: str) -> None:
        """Remove a plan's file; a removal that has begun finishes even if the caller is cancelled."""
        await worker_threads.uncut(self._remove(session_id))

    async def was_removed(self, session_id: str) -> bool:
        """Return whether a session had a plan that was removed."""
        marker = layout.plan_marker(layout.PLANS_REMOVED, session_id)
        return await self._context.workers.run(lambda: self._context.disk.has_file(marker))

    async def was_lost(self, session_id: str) -> bool:
        """Return whether a session had a plan whose file is gone without a removal here."""
        name = layout.file_name(session_id)
        return await self._context.workers.run(lambda: _is_lost(self._context.disk, name))

    async def log_losses(self) -> None:
        """Log each plan whose file is gone without a removal here."""
        lost = await self._context.workers.run(lambda: _lost(self._context.disk))
        for name in lost:
            _log.error("%s/%s/%s is gone, although the plan was not deleted here", layout.PLANS, name, layout.PLAN)

    async def list(self, query: plans.PlanQuery) -> list[plans.PlanSummary]:
        """Return plans, newest first; an unreadable or damaged one in its last known state.

        Raises:
            errors.Unreadable: a file that was never read cannot be read now.
        """
        await self._read_changed()
        for fault in [] if query.partial else self._unread.values():
            raise errors.Unreadable(fault.message, detail=fault.detail)
        found = (head.summary for head in self._heads.values() if head.summary is not None)
        wanted = [each for each in found if query.status in (None, each.status) and (each.waits or not query.waits)]
        if query.cursor is not None:
            wanted = [each for each in wanted if _place(each) < query.cursor]
        return sorted(wanted, key=_place, reverse=True)[: query.limit]

    async def _put(self, plan: plans.Plan, known: plans.Plan | None) -> None:
        path = layout.plan_file(plan.session_id)
        # Two changes use the same temporary file, and must replace the plan in order.
        turn = self._locks.setdefault(plan.session_id, asyncio.Lock())
        async with turn:
            kept = self._known.get(plan.session_id)
            check = partial(_expect, self._context.disk, known, kept) if known is not None else None
            try:
                signature = await self._context.workers.run(lambda: self._replaced(path, plan, check))
            except OSError as error:
                raise self._context.disk_health.failed(path, error) from error
            name = layout.file_name(plan.session_id)
            self._heads[name] = _Head(signature, plans.summary(plan))
            self._remember(_Known(signature, plan))

    async def _remove(self, session_id: str) -> None:
        async with self._locks.setdefault(session_id, asyncio.Lock()):
            try:
                await self._context.workers.run(lambda: self._removed(session_id))
            except OSError as error:
                raise self._context.disk_health.failed(layout.plan_file(session_id), error) from error
            self._heads.pop(layout.file_name(session_id), None)
            self._known.pop(session_id, None)

    def _removed(self, session_id: str) -> None:
        path, files, reach = layout.plan_file(session_id), self._context.disk, self._context.probes.reach
        folder = path.rpartition("/")[0]
        # Runs of the plan are kept, and a new plan with the same id would find them by their keys.
        reach("storage.plan.before_marker")
        self._mark(layout.PLANS_REMOVED, session_id)
        reach("storage.plan.before_remove")
        if files.has_file(path):
            files.remove(path)
            reach("storage.plan.after_remove")
            files.sync_folder(folder)
            if not files.names(folder):
                files.remove_tree(folder)
        with contextlib.suppress(FileNotFoundError):
            files.remove(layout.plan_marker(layout.PLANS_MADE, session_id))

    def _replaced(self, path: str, plan: plans.Plan, check: Callable[[], None] | None) -> Signature:
        if check is not None:
            # No new file is built if the old one is gone or changed already.
            check()
        content = plain.readable(plan.to_json())
        files, reach = self._context.disk, self._context.probes.reach
        if not files.has_file(path):
            # An existing file has a folder with a durable name.
            files.add_folder(path.rpartition("/")[0])
            files.sync_folder(layout.PLANS)
        signature: Signature = ()

        def sign(fresh: str) -> None:
            # Under its own name another process could change the file at once.
            nonlocal signature
            signature = files.signature(fresh)
            if check is not None:
                check()

        disk_port.replace(files, path, content, sync=True, reach=reach, at="storage.plan", check=sign)
        if not files.has_file(layout.plan_marker(layout.PLANS_MADE, plan.session_id)):
            # After the file, so that a plan that never existed is not reported as lost.
            self._mark(layout.PLANS_MADE, plan.session_id)
        return signature

    def _mark(self, kind: str, session_id: str) -> None:
        files = self._context.disk
        if files.add_folder(kind):
            files.sync_folder(layout.PLANS)
        files.write(layout.plan_marker(kind, session_id), b"", sync=True)
        files.sync_folder(kind)

    def _remember(self, known: _Known) -> None:
        self._known[known.plan.session_id] = known
        self._known.move_to_end(known.plan.session_id)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)

    async def _read_changed(self) -> None:
        """Read the files that are new or have changed since they were last read."""
        run, files = self._context.workers.run, self._context.disk
        signatures, unread = await run(lambda: _signatures(files))
        stale = {
            name: head for name, now in signatures.items() if (head := self._heads.get(name, _NEW)).signature != now
        }
        names = iter(stale)
        while chunk := list(islice(names, _CHUNK)):
            noticed_at = clock.stamp(self._context.clock.now())
            known = {name: stale[name].summary for name in chunk}
            heads, more = await run(partial(_heads, files, known, noticed_at))
            unread |= more
            for name, head in heads.items():
                # A plan that was put meanwhile is newer than the one read.
                if self._heads.get(name, _NEW) is stale[name]:
                    self._heads[name] = head
                    _log_damage(name, head)
        self._unread = {name: fault for name, fault in unread.items() if name not in self._heads}
        for name in self._heads.keys() - signatures.keys() - unread.keys():
            # The plan may have been made after the names were read.
            if not await run(partial(files.has_file, f"{layout.PLANS}/{name}/{layout.PLAN}")):
                self._heads.pop(name, None)


def _log_damage(name: str, head: _Head) -> None:
    if head.summary is None or head.summary.error is not None:
        _log.warning("%s/%s/%s cannot be read as a plan", layout.PLANS, name, layout.PLAN)


def _read_if_changed(files: Disk, session_id: str, known: _Known | None) -> _Known | None:
    try:
        # Before the content: a file that changes during the read is read again next time.
        signature = files.signature(layout.plan_file(session_id))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        signature = ()
    if known is not None and known.signature == signature:
        return known
    plan = _read(files, session_id)
    return None if plan is None else _Known(signature, plan)


def _expect(files: Disk, known: plans.Plan, kept: _Known | None) -> None:
    """Refuse to continue if a plan's file differs from the known plan."""
    found = _read_if_changed(files, known.session_id, kept)
    if found is None or not _says_the_same(found.plan, known):
        message = f"the file of the plan {known.session_id} was changed by another program; it is left as it is"
        raise errors.Conflict(message, code=plans.CHANGED, detail={"session_id": known.session_id})


def _says_the_same(one: plans.Plan, other: plans.Plan) -> bool:
    return one is other or plain.canonical(one.to_json()) == plain.canonical(other.to_json())


def _read(files: Disk, session_id: str) -> plans.Plan | None:
    path = layout.plan_file(session_id)
    try:
        plan = _load(files, path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    _expect_of(path, plan, session_id)
    return plan


def _expect_of(path: str, plan: plans.Plan, session_id: str) -> None:
    if plan.session_id != session_id:
        message = f"is {plan.session_id!r:.80}, and its folder belongs to {session_id!r:.80}"
        flaw = errors.Flaw(path="$.session_id", code="other_session", message=message)
        raise _damaged(path, f"{flaw.path}: {message}", [flaw])


def _load(files: Disk, path: str) -> plans.Plan:
    try:
        return plan_files.read(files.read(path))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise _damaged(path, f"it cannot be loaded as a file ({error.strerror})", []) from error
    except errors.InputRefused as error:
        raise _damaged(path, error.message, error.flaws) from error


def check(files: Disk, name: str) -> str | None:
    """Return the flaw of a plan's file, given the name of its folder; None if it is sound."""
    try:
        plan = plan_files.read(files.read(f"{layout.PLANS}/{name}/{layout.PLAN}"))
    except errors.InputRefused as error:
        return "; ".join(f"{flaw.path}: {flaw.message}" for flaw in error.flaws[:3]) or error.message
    return None if layout.file_name(plan.session_id) == name else f"is about the session {plan.session_id!r:.80}"


def _lost(files: Disk) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(errors.Unreadable):
        for name in files.names(layout.PLANS_MADE):
            found += [name] if _is_lost(files, name) else []
    return found


def _is_lost(files: Disk, name: str) -> bool:
    made, removed = (files.has_file(f"{kind}/{name}") for kind in (layout.PLANS_MADE, layout.PLANS_REMOVED))
    return made and not removed and not files.has_file(f"{layout.PLANS}/{name}/{layout.PLAN}")


def _signatures(files: Disk) -> tuple[dict[str, Signature], dict[str, errors.Unreadable]]:
    return _read_each(files.names(layout.PLANS), lambda name: files.signature(f"{layout.PLANS}/{name}/{layout.PLAN}"))


def _heads(
    files: Disk, known: Mapping[str, plans.PlanSummary | None], noticed_at: str
) -> tuple[dict[str, _Head], dict[str, errors.Unreadable]]:
    def head(name: str) -> _Head:
        # Before the content: a file that changes during the read is read again next time.
        path = f"{layout.PLANS}/{name}/{layout.PLAN}"
        signature, before = files.signature(path), known[name]
        try:
            plan = _load(files, path)
            if before is not None:
                _expect_of(path, plan, before.session_id)
        except errors.Conflict as error:
            return _Head(signature, _damaged_summary(name, before, error, noticed_at))
        # A copy in a folder of another name is ignored.
        return _Head(signature, plans.summary(plan) if _belongs(plan.session_id, name) else None)

    return _read_each(known, head)


def _read_each(names: Iterable[str], read: Callable[[str], T]) -> tuple[dict[str, T], dict[str, errors.Unreadable]]:
    found: dict[str, T] = {}
    unread: dict[str, errors.Unreadable] = {}
    for name in names:
        try:
            found[name] = read(name)
        except errors.Unreadable as fault:
            unread[name] = fault
        except OSError:
            continue
    return found, unread


def _damaged_summary(
    name: str, known: plans.PlanSummary | None, error: errors.Conflict, noticed_at: str
) -> plans.PlanSummary | None:
    failure = records.StepError(code=error.code, message=error.message).to_json()
    if known is not None:
        return dataclasses.replace(known, error=failure)
    # A shortened name does not reveal the session.
    session_id = unquote(name)
    return plans.damaged(session_id, failure, noticed_at) if _belongs(session_id, name) else None


def _belongs(session_id: str, name: str) -> bool:
    return layout.can_have_plan(session_id) and layout.file_name(session_id) == name


def _place(summary: plans.PlanSummary) -> tuple[str, str]:
    return summary.created_at, summary.session_id


def _damaged(path: str, why: str, flaws: tuple[errors.Flaw, ...] | list[errors.Flaw]) -> errors.Conflict:
    message = f"the file of the plan cannot be trusted: {path}: {why}; nothing was changed"
    return errors.Conflict(
        message, code=plans.DAMAGED, detail={"file": path, "flaws": [each.to_json() for each in flaws]}
    )
