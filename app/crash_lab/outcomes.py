"""Outcomes: the state of runs at rest, from the use cases, without parts that differ between any two runs."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from app import bootstrap, errors
from app.domain import issues, plain, records
from app.engine import stores

_MANIFEST = ("status", "phase", "current_step_index", "total_steps", "error", "reason", "ending")
_LINE = ("key", "status", "tool", "agent_id", "output_slot", "output_hash", "output_preview", "error", "final")
_MEASURED = ("cpu_seconds", "peak_bytes", "wait_duration_ms", "poll_count")
_PASSING = ("receipt_id", "created_at", "started_at", "completed_at")
_ISSUE = ("title", "kind", "status", "session_id", "key")
_RECEIPT_ID = re.compile("rcpt_[0-9a-f]+")
_RUN_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[a-z0-9]{6}")
_ISSUE_ID = re.compile("iss_[0-9a-f]+")

Outcome = dict[str, Any]


async def of_run(application: bootstrap.Application, run_id: str) -> Outcome:
    """Return the outcome of a run, as the service shows it."""
    detail = json.loads((await application.runs.reader.ready(run_id)).body)
    view = None
    with contextlib.suppress(errors.JournalCorrupt):
        view = await application.runs.reader.view(run_id)
    summary = await application.store.summary(run_id)
    kinds = [event.type for event in await application.store.read_events(run_id)]
    lines = list(_in_order(view.living())) if view else []
    found = await _issues(application, run_id)
    damaged = {issue["error"] for issue in found if "error" in issue}
    slots = {name: await application.runs.reader.slot(run_id, name) for name in detail["cache_summary"]}
    return {
        "manifest": {name: detail.get(name) for name in _MANIFEST},
        "listed": {"status": summary.status, "rows": await _rows(application)},
        "records": [_line(record) for record in lines] if view else None,
        "receipts": [await _receipt(application, record) for record in lines] if view else None,
        "slots": {name: _lasting(slot) for name, slot in slots.items()},
        "issues": found,
        "events": {"created": kinds.count("run.created"), "ended": kinds.count("run.ended")},
        "intact": (await application.store.maintenance.verify(run_id))["ok"],
        "told": sorted({kind for kind in kinds if kind.startswith(("recovery.", "storage."))} | damaged),
        "attempts": {record.key: record.attempt for record in lines},
    }


def together(runs: Sequence[Outcome], reports: Iterable[str] = ()) -> Outcome:
    """Return the outcome of several runs: that of the first, with the others in it.

    Args:
        reports: Further reports about them.
    """
    attempts = (
        (f"{number}/{key}", tried) for number, each in enumerate(runs) for key, tried in each["attempts"].items()
    )
    return runs[0] | {
        "tasks": [comparable(each) for each in runs[1:]],
        "attempts": dict(attempts),
        "told": sorted({*reports, *(kind for each in runs for kind in each["told"])}),
    }


def comparable(outcome: Outcome) -> Outcome:
    """Leave out what a disturbance may change: the numbers of attempts, and reports."""
    return {name: value for name, value in outcome.items() if name not in ("told", "attempts")}


def of_workspace(project: Path) -> dict[str, str]:
    """Return the hash of each file of a workspace outside its data directory; the hashes of files that differ only in a
    run's id are grouped.
    """
    found: dict[str, list[str]] = {}
    for path in project.rglob("*"):
        place = path.relative_to(project)
        if path.is_file() and not path.is_symlink() and ".control-room" not in place.parts:
            found.setdefault(_nameless(str(place)), []).append(hashlib.sha256(path.read_bytes()).hexdigest())
    return {name: " ".join(sorted(hashes)) for name, hashes in sorted(found.items())}


def difference(expected: Any, found: Any, place: str = "") -> str:
    """Return the first place where two outcomes differ, and how; empty if they are equal."""
    if isinstance(expected, dict) and isinstance(found, dict):
        names = [*expected, *(name for name in found if name not in expected)]
        parts = (difference(expected.get(name), found.get(name), f"{place}.{name}") for name in names)
        return next((part for part in parts if part), "")
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        parts = (difference(*pair, f"{place}[{number}]") for number, pair in pairs)
        return next((part for part in parts if part), "")
    return "" if expected == found else f"{place.lstrip('.')}: {found!r:.300} in place of {expected!r:.300}"


def _in_order(lines: Iterable[records.Record]) -> Iterator[records.Record]:
    # The order in which branches end is random.
    for side_by_side, group in itertools.groupby(lines, lambda record: bool(record.branch)):
        block = list(group)
        yield from sorted(block, key=lambda record: record.key) if side_by_side else block


async def _rows(application: bootstrap.Application) -> int:
    return len(await application.store.list_runs(stores.RunQuery(limit=1000)))


async def _issues(application: bootstrap.Application, run_id: str) -> list[dict[str, Any]]:
    found, _ = await application.issues.page(issues.IssueQuery(run_id=run_id, limit=1000))
    shown = [await _issue(application, summary.issue_id) for summary in found]
    return sorted(shown, key=lambda issue: str(issue.get("key")))


async def _issue(application: bootstrap.Application, issue_id: str) -> dict[str, Any]:
    try:
        issue = await application.issues.show(issue_id)
    except errors.Conflict as error:
        return {"error": error.code}
    return {name: issue[name] for name in _ISSUE} | {"receipts": len(issue["receipts"])}


async def _receipt(application: bootstrap.Application, record: records.Record) -> Any:
    if record.receipt_id is None:
        return None
    try:
        receipt = await application.store.find_receipt(record.receipt_id)
    except errors.NotFound:
        return "missing"
    return {name: receipt.get(name) for name in ("key", "tool", "sha256")}


def _line(record: records.Record) -> dict[str, Any]:
    told = {name: record.line.get(name) for name in _LINE}
    if isinstance(record.output, dict):
        lasting = {name: value for name, value in record.output.items() if name not in _MEASURED}
        told["output_hash"] = plain.labelled_sha256(_nameless(plain.canonical(lasting).decode()).encode())
        told["output_preview"] = _nameless(str(told["output_preview"]))
    return told


def _nameless(text: str) -> str:
    # If its start was refused, a run is requested again and gets another id, as do its issue and the files that are
    # named for it.
    return _ISSUE_ID.sub("iss", _RUN_ID.sub("run", text))


def _lasting(slot: dict[str, Any]) -> dict[str, Any]:
    lasting = {name: value for name, value in slot.items() if name not in _PASSING}
    text = lasting.get("text")
    if isinstance(text, str) and _RECEIPT_ID.search(text):
        # A receipt's id depends on the attempt that it proves.
        lasting |= {"text": _RECEIPT_ID.sub("rcpt", text), "sha256": None, "summary": None}
    return lasting
