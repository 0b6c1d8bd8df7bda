"""Verify and repair: reports which part of a run is sound, and keeps that part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app import clock, errors
from app.domain import decisions, plain, states
from app.engine import maintenance_port, missing_lines
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk
from app.storage.journal import chain, damage
from app.storage.journal.chain import Integrity, Reading
from app.storage.runs import authority
from app.storage.runs import missing_lines as missing
from app.storage.runs.authority import Authority
from app.storage.storage_context import StorageContext


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prefix:
    steps: int
    control: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Journal:
    name: str
    reading: Reading
    kept: int
    further: dict[str, plain.Json] | None = None


def verify(files: Disk, run_id: str) -> maintenance_port.Verification:
    """Report on each file of a run's authority without a change.

    Raises:
        errors.NotFound: the run does not exist.
    """
    try:
        found, lost = missing.read_with_missing(files, run_id, deep=True)
    except errors.JournalCorrupt as error:
        return report("run", run_id, [entry(layout.START, "corrupt", error.detail["reason"])])
    except errors.Unreadable as fault:
        return report("run", run_id, [unreadable(fault)])
    further = _known(found, lost)
    journals = (_file(found, layout.STEPS, found.steps, further), _file(found, layout.CONTROL, found.control, further))
    return report("run", run_id, [entry(layout.START, "ok"), *journals])


def report(kind: str, name: str, files: list[maintenance_port.FileVerified]) -> maintenance_port.Verification:
    """Return the findings in all files of one checked thing; damage outranks files that cannot be read now."""
    states = {file["state"] for file in files}
    state = "damaged" if "corrupt" in states else "unreadable" if "unreadable" in states else "sound"
    advice = _advice(kind, name, files) if state == "damaged" else None
    found: maintenance_port.Verification = {
        "kind": kind,
        "id": name,
        "state": state,
        "ok": state == "sound",
        "files": files,
        "advice": advice,
    }
    return found if kind != "run" else {**found, "run_id": name}


def entry(
    file: str, state: str, reason: object = None, *, lines: int | None = None, line: int | None = None
) -> maintenance_port.FileVerified:
    """Return the findings in one file."""
    stated = str(reason) if reason else None
    return {"file": file, "state": state, "lines": lines, "line": line, "reason": stated}


def unreadable(fault: errors.Unreadable) -> maintenance_port.FileVerified:
    """Return the finding for a file that cannot be read now."""
    return entry(str(fault.detail.get("file")), "unreadable", f"cannot be read now ({fault.detail.get('errno')})")


def repair(context: StorageContext, run_id: str, *, dry_run: bool = False) -> maintenance_port.Repaired:
    """Keep the sound part of a locked run; complete copies of the former files are set aside.

    The run is left paused, so that it does not continue before a person has looked at it.

    Args:
        dry_run: Whether only to report the changes that a repair would make; the run need not be locked then.

    Raises:
        errors.NotFound: the run does not exist.
        errors.JournalCorrupt: start.json cannot be read, without which no repair is possible.
    """
    found, lost = missing.read_with_missing(context.disk, run_id, deep=True)
    prefix = _prefix(found)
    decided = _decided(found, prefix)
    whole = {found.steps.integrity, found.control.integrity} == {Integrity.WHOLE}
    given_up = lost is not None or decided.paused == decisions.LINES_MISSING
    sound = whole and not (found.damages or given_up)
    rests = decided.ended or (decided.paused and not given_up)
    further = None if sound or rests else _pause(context, prefix.steps)
    journals = (
        _Journal(name=layout.STEPS, reading=found.steps, kept=prefix.steps),
        _Journal(name=layout.CONTROL, reading=found.control, kept=prefix.control, further=further),
    )
    kept = [_keep(context, run_id, journal, dry_run=dry_run) for journal in journals]
    after = decided.ended.status if decided.ended else states.RunState.PAUSED
    status = decided.status if sound else after
    return {"run_id": run_id, "changed": not sound, "dry_run": dry_run, "status": status.value, "files": kept}


def _prefix(found: Authority) -> _Prefix:
    """Return how many lines of each journal to keep; an ending that no longer matches is dropped with all after it."""
    lines = [damage.line for damage in found.damages if damage.file == layout.STEPS and damage.line is not None]
    steps = min([len(found.steps.lines), *(max(line - 1, 0) for line in lines)])
    heads = [found.anchor, *(line.digest for line in found.steps.lines[:steps])]
    for position, line in enumerate(found.control.lines):
        # An ending contains the number and the last hash of the step lines. If the repair drops some of these lines,
        # the ending no longer describes the run, so it is dropped, too, and the run can continue.
        if line.fields["kind"] == decisions.DecisionKind.ENDED and not _fits(line.fields, heads):
            return _Prefix(steps=steps, control=position)
    return _Prefix(steps=steps, control=len(found.control.lines))


def _fits(ended: dict[str, Any], heads: list[str]) -> bool:
    lines = ended["lines"]
    return isinstance(lines, int) and 0 <= lines < len(heads) and heads[lines] == ended["head"]


def _decided(found: Authority, prefix: _Prefix) -> decisions.Decisions:
    return decisions.fold(line.fields for line in found.control.lines[: prefix.control])


def _pause(context: StorageContext, lines: int) -> dict[str, plain.Json]:
    at = clock.stamp(context.clock.now())
    return {"kind": decisions.DecisionKind.PAUSED.value, "at": at, "reason": decisions.REPAIRED, "lines": lines}


def _keep(
    context: StorageContext, run_id: str, journal: _Journal, *, dry_run: bool
) -> maintenance_port.JournalRepaired:
    files, path = context.disk, f"{layout.run_folder(run_id)}/{journal.name}"
    is_file = files.has_file(path)
    is_too_large = is_file and files.size(path) > disk_port.LARGEST_BYTES
    old = files.read(path) if is_file and not is_too_large else b""
    kept = journal.reading.first(journal.kept, Integrity.WHOLE, "")
    # A file that is too large is not read; all of it counts as one line.
    lost = b"?" if is_too_large else old[kept.end :]
    aside = _free_name(files, path) if lost else None
    if is_too_large and not dry_run:
        disk_port.make_way(files, path)
    if not dry_run:
        _replace(context, path, old, None if is_too_large else aside, journal, kept)
    return {
        "file": journal.name,
        "kept": journal.kept,
        "lost": lost.count(b"\n") + (bool(lost) and not lost.endswith(b"\n")),
        "aside": aside.rpartition("/")[2] if aside else None,
        "reason": journal.reading.reason or None,
    }


def _replace(
    context: StorageContext, path: str, old: bytes, aside: str | None, journal: _Journal, kept: Reading
) -> None:
    files, reach = context.disk, context.probes.reach
    # The damaged file is durable under its new name before the shorter one replaces it: a power cut in between leaves
    # both, and no line is lost.
    if aside is not None:
        disk_port.replace(files, aside, old, sync=True, reach=reach, at="storage.repair.aside")
    if aside is None and files.has_file(path) and journal.further is None:
        return
    fresh = old[: kept.end]
    if journal.further is not None:
        fresh += chain.seal(plain.encode(journal.further), batch=journal.kept, prev=kept.head).content
    disk_port.replace(files, path, fresh, sync=True, reach=reach, at="storage.repair.prefix")


def _free_name(files: Disk, path: str) -> str:
    count = 1
    while files.has_file(f"{path}.damaged-{count}"):
        count += 1
    return f"{path}.damaged-{count}"


def _file(
    found: Authority, file: str, reading: Reading, further: list[authority.Damage]
) -> maintenance_port.FileVerified:
    damages = [damage for damage in (*found.damages, *further) if damage.file == file]
    state = "corrupt" if damages else "torn" if reading.integrity is Integrity.TORN else "ok"
    first = damages[0] if damages else None
    line = first.line if first else len(reading.lines) + 1 if state == "torn" else None
    return entry(file, state, first.reason if first else reading.reason, lines=len(reading.lines), line=line)


def _known(found: Authority, lost: missing_lines.MissingLines | None) -> list[authority.Damage]:
    if lost is not None:
        return [_gone(lost.file, lost.told_by)]
    decided = found.decisions
    if decided.ended is not None or decided.paused != decisions.LINES_MISSING:
        # The person who resumed the run has accepted the loss.
        return []
    detail = decided.pause_error.get("detail") if decided.pause_error else None
    facts = detail if isinstance(detail, dict) else {}
    return [_gone(str(facts.get("file", layout.STEPS)), str(facts.get("told_by", layout.CONTROL)))]


def _gone(file: str, told_by: str) -> authority.Damage:
    return authority.Damage(file=file, line=None, reason=f"has lost lines at its end, of which {told_by} tells")


def _advice(kind: str, name: str, files: list[maintenance_port.FileVerified]) -> str:
    if kind == "audit":
        return "entries were changed or lost: compare the file with a backup; new entries are appended"
    if kind != "run":
        return "put the file back from a backup, or remove it"
    return damage.advice(name, next(file["file"] for file in files if file["state"] == "corrupt"))
