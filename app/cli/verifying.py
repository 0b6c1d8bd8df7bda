"""Verification of everything that is stored, and how it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from app.cli import formats, terminal
from app.cli.client import Answer, Client

_KINDS = {"run": "runs", "receipts": "files of receipts", "plan": "plans", "issue": "issues"}
_KINDS |= {"conversation": "conversations", "audit": "audit log"}


async def verify_everything(client: Client) -> Answer:
    """Return the number of checked things of each kind, and the reports of unsound ones."""
    checked, states, reports = Counter[str](), Counter[str](), list[Answer]()
    drawn = 0
    async with aclosing(client.verify_all()) as pages:
        async for page in pages:
            checked.update(report["kind"] for report in page)
            states.update(report["state"] for report in page)
            reports += [report for report in page if not report["ok"]]
            if terminal.is_drawn_on():
                terminal.draw([f"{_counted(checked)} checked, {states['damaged']} damaged"], over=drawn)
                drawn = 1
    state = "damaged" if states["damaged"] else "unreadable" if states["unreadable"] else "sound"
    counts = {name: states[name] for name in ("sound", "damaged", "unreadable")}
    return {"state": state, "ok": state == "sound", "checked": dict(checked), **counts, "reports": reports}


def report_of(found: Mapping[str, Any]) -> str:
    """Return unsound things as a table, what to do about them, and how much was checked."""
    rows = [(report["kind"], report["id"], report["state"], *_worst(report)) for report in found["reports"]]
    parts = [formats.table(("kind", "id", "state", "file", "reason"), rows)] if rows else []
    advice = [f"{report['id']}: {formats.advice(report)}" for report in found["reports"] if report["advice"]]
    told = f"{found['damaged']} damaged, {found['unreadable']} cannot be read now"
    return "\n".join([*parts, *advice, f"checked {_counted(found['checked'])}: {told}"])


def _worst(report: Mapping[str, Any]) -> tuple[str, str]:
    file = next(file for file in report["files"] if file["state"] in ("corrupt", "unreadable"))
    place = "" if file["line"] is None else f"line {file['line']} "
    return file["file"], f"{place}{file['reason']}"


def _counted(checked: Mapping[str, int]) -> str:
    return ", ".join(f"{checked.get(kind, 0)} {name}" for kind, name in _KINDS.items())
