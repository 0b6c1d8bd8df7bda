"""
Verify and repair: say what of a run can be believed, and keep just that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app import clock, errors
from app.engine import decisions, plain
from app.storage import authority, chain, disk, layout
from app.storage.authority import Authority
from app.storage.chain import Reading, Verdict
from app.storage.disk import Disk
from app.storage.means import Means

REASON = decisions.REPAIRED
"""Reason of the pause that a repair leaves behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prefix:
    steps: int
    control: int


def verify(files: Disk, run_id: str) -> dict[str, plain.Json]:
    """
    Report on each file of a run's authority; nothing is changed.

    Raises:
        errors.NotFound: there is no such run.
    """
    try:
        found = authority.read(files, run_id, deep=True)
    except errors.JournalCorrupt as error:
        report = {"file": layout.START, "state": "corrupt", "lines": None, "line": None}
        return _report(run_id, [report | {"reason": error.detail["reason"]}])
    except errors.Unreadable as fault:
        report = {"file": fault.detail["file"], "state": "unreadable", "lines": None, "line": None}
        return _report(run_id, [report | {"reason": f"cannot be read now ({fault.detail['errno']})"}])
    start = {"file": layout.START, "state": "ok", "lines": None, "line": None, "reason": None}
    return _report(
        run_id, [start, _file(found, layout.STEPS, found.steps), _file(found, layout.CONTROL, found.control)]
    )


def repair(means: Means, run_id: str) -> dict[str, plain.Json]:
    """
    Keep what can be believed of a run that is held; what was there is put aside, whole.

    The run is left paused, so that nothing goes on before a person has looked.

    Raises:
        errors.NotFound: there is no such run.
        errors.JournalCorrupt: start.json cannot be read; there is nothing to go on from.
    """
    found = authority.read(means.disk, run_id, deep=True)
    prefix = _prefix(found)
    sound = not found.damages and {found.steps.verdict, found.control.verdict} == {Verdict.WHOLE}
    further = None if sound else _pause(found, prefix, means)
    told = [
        _keep(means, run_id, layout.STEPS, found.steps, prefix.steps, None),
        _keep(means, run_id, layout.CONTROL, found.control, prefix.control, further),
    ]
    return {"run_id": run_id, "changed": not sound, "files": told}


def _prefix(found: Authority) -> _Prefix:
    """
    Decide how many lines of each journal are kept: an ending that no longer fits goes, with what came after it.
    """
    lines = [damage.line for damage in found.damages if damage.file == layout.STEPS and damage.line is not None]
    steps = min([len(found.steps.lines), *(max(line - 1, 0) for line in lines)])
    heads = [found.anchor, *(line.digest for line in found.steps.lines[:steps])]
    for position, line in enumerate(found.control.lines):
        if line.fields["kind"] == decisions.DecisionKind.ENDED and not _fits(line.fields, heads):
            return _Prefix(steps=steps, control=position)
    return _Prefix(steps=steps, control=len(found.control.lines))


def _fits(ended: dict[str, Any], heads: list[str]) -> bool:
    lines = ended["lines"]
    return isinstance(lines, int) and 0 <= lines < len(heads) and heads[lines] == ended["head"]


def _pause(found: Authority, prefix: _Prefix, means: Means) -> dict[str, plain.Json] | None:
    decided = decisions.Decisions()
    for line in found.control.lines[: prefix.control]:
        decided.apply(line.fields)
    if decided.ended is not None or decided.paused is not None:
        return None
    at = clock.stamp(means.clock.now())
    return {"kind": decisions.DecisionKind.PAUSED.value, "at": at, "reason": REASON, "lines": prefix.steps}


def _keep(
    means: Means, run_id: str, file: str, reading: Reading, count: int, further: dict[str, plain.Json] | None
) -> dict[str, plain.Json]:
    files, reach, path = means.disk, means.probes.reach, f"{layout.run_folder(run_id)}/{file}"
    missing = not files.has_file(path)
    old = b"" if missing else files.read(path)
    kept = reading.first(count, Verdict.WHOLE, "")
    lost, aside = old[kept.end :], None
    if lost:
        aside = _free_name(files, path)
        disk.replace(files, aside, old, sync=True, reach=reach, at="storage.repair.aside")
    if lost or missing or further is not None:
        fresh = old[: kept.end]
        if further is not None:
            fresh += chain.seal(plain.encode(further), batch=count, prev=kept.head).content
        disk.replace(files, path, fresh, sync=True, reach=reach, at="storage.repair.prefix")
    return {
        "file": file,
        "kept": count,
        "lost": lost.count(b"\n") + (bool(lost) and not lost.endswith(b"\n")),
        "aside": aside.rpartition("/")[2] if aside else None,
        "reason": reading.reason or None,
    }


def _free_name(files: Disk, path: str) -> str:
    count = 1
    while files.has_file(f"{path}.damaged-{count}"):
        count += 1
    return f"{path}.damaged-{count}"


def _file(found: Authority, file: str, reading: Reading) -> dict[str, plain.Json]:
    damages = [damage for damage in found.damages if damage.file == file]
    state = "corrupt" if damages else "torn" if reading.verdict is Verdict.TORN else "ok"
    first = damages[0] if damages else None
    line = first.line if first else len(reading.lines) + 1 if state == "torn" else None
    return {
        "file": file,
        "state": state,
        "lines": len(reading.lines),
        "line": line,
        "reason": first.reason if first else reading.reason or None,
    }


def _report(run_id: str, files: list[dict[str, plain.Json]]) -> dict[str, plain.Json]:
    return {"run_id": run_id, "ok": all(file["state"] in ("ok", "torn") for file in files), "files": files}
