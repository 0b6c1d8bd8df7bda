"""Verification: checks every file of a data directory that has a chain, a hash or a form, without a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from app import errors
from app.engine import maintenance_port
from app.storage import agent_sessions, audit, issues, layout, plans
from app.storage.disk.disk_port import Disk
from app.storage.runs import receipts, repair

_Place: TypeAlias = tuple[str, str]

_ORDERS = layout.AUDIT_ORDERS.rpartition("/")[2]

_ENTRIES: Mapping[str, Callable[[Disk], list[str]]] = {
    "run": lambda files: layout.run_ids(files.names(layout.RUNS)),
    "receipts": lambda files: files.names(layout.SESSIONS),
    "plan": lambda files: [name for name in files.names(layout.PLANS) if _has_plan(files, name)],
    "issue": lambda files: [name for name in files.names(layout.ISSUES) if not name.startswith(".")],
    "conversation": lambda files: files.names(layout.AGENT_SESSIONS),
    "audit": lambda files: [_ORDERS] if files.has_file(layout.AUDIT_ORDERS) else [],
}
_ORDER = list(_ENTRIES)


def page(files: Disk, after: str | None, most: int, is_over: Callable[[], bool]) -> maintenance_port.Verified:
    """Check at most `most` things after a cursor, and stop when the time is over.

    Raises:
        errors.RequestInvalid: the cursor does not belong to this list.
    """
    found: list[maintenance_port.Verification] = []
    last: _Place | None = None
    for place in _places(files, _place(after)):
        if last is not None and (len(found) >= most or is_over()):
            return maintenance_port.Verified(reports=found, cursor="/".join(last))
        last = place
        if (report := _report(files, *place)) is not None:
            found.append(report)
    return maintenance_port.Verified(reports=found, cursor=None)


def _place(cursor: str | None) -> _Place | None:
    if cursor is None:
        return None
    kind, _, name = cursor.partition("/")
    if kind not in _ENTRIES:
        flaw = errors.Flaw(path="query.cursor", message="is not a cursor of this list")
        raise errors.RequestInvalid(
            "the cursor does not belong to this list; take it from a `Link` header", code="bad_cursor", flaws=[flaw]
        )
    return kind, name


def _places(files: Disk, after: _Place | None) -> Iterator[_Place]:
    begin = (_ORDER.index(after[0]), after[1]) if after else (-1, "")
    for number, kind in enumerate(_ORDER):
        if number >= begin[0]:
            yield from ((kind, name) for name in _ENTRIES[kind](files) if (number, name) > begin)


def _report(files: Disk, kind: str, name: str) -> maintenance_port.Verification | None:
    try:
        if kind == "run":
            return repair.verify(files, name)
        return repair.report(kind, name, list(_checked(files, kind, name)))
    except (errors.NotFound, FileNotFoundError, NotADirectoryError):
        # The thing was removed meanwhile, or never existed.
        return None
    except errors.Unreadable as fault:
        return repair.report(kind, name, [repair.unreadable(fault)])
    except OSError as error:
        return repair.report(
            kind, name, [repair.entry(name, "corrupt", f"cannot be loaded as a file ({error.strerror})")]
        )


def _checked(files: Disk, kind: str, name: str) -> Iterator[maintenance_port.FileVerified]:
    match kind:
        case "receipts":
            count, line, reason = receipts.check(files, name)
            yield _entry(layout.RECEIPTS, reason, lines=count, line=line)
        case "plan":
            yield _entry(layout.PLAN, plans.check(files, name))
        case "issue":
            yield _entry(name, issues.check(files, name))
        case "audit":
            count, state, line, reason = audit.check(files)
            yield repair.entry(name, state, reason, lines=count, line=line)
        case _:
            yield from (_entry(file, reason) for file, reason in agent_sessions.check(files, name))


def _entry(file: str, reason: str | None, **place: int | None) -> maintenance_port.FileVerified:
    return repair.entry(file, "corrupt" if reason else "ok", reason, **place)


def _has_plan(files: Disk, name: str) -> bool:
    folder = f"{layout.PLANS}/{name}"
    return not name.startswith(".") and folder != layout.AGENT_SESSIONS and layout.PLAN in files.names(folder)
