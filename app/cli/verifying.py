"""The command `runs verify`: check a run, or all stored data, and show the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

import click

from app.cli import exit_codes, formats, options, terminal, use_cases
from app.cli.client import Client, JsonObject

_KINDS = {"run": "runs", "receipts": "files of receipts", "plan": "plans", "issue": "issues"}
_KINDS |= {"conversation": "conversations", "audit": "audit log"}


@click.command()
@click.argument("run_id", required=False)
@click.option(
    "--all", "everything", is_flag=True, help="Check every run, receipt, plan, issue, conversation, and the audit log."
)
@options.as_json
@options.anywhere
def verify(place: options.Place, as_json: bool, run_id: str | None, everything: bool) -> int:
    """Verify a run's start file, journals and blobs. Nothing is changed.

    Exit code 1 if something is damaged; 5 if something cannot be read now.
    """
    if (run_id is None) is not everything:
        raise click.UsageError("Name a run, or give --all.")
    if run_id is None:
        found = place.work(verify_everything)
        return _verified(found, as_json, report_of)
    report = place.ask(use_cases.verify_run, run_id)
    return _verified(report, as_json, formats.verification)


async def verify_everything(client: Client) -> JsonObject:
    """Return the number of checked objects of each kind, and the reports of unsound ones."""
    checked, states, reports = Counter[str](), Counter[str](), list[JsonObject]()
    drawn = 0
    async with aclosing(client.verify_all()) as pages:
        async for page in pages:
            checked.update(report["kind"] for report in page)
            states.update(report["state"] for report in page)
            reports += [report for report in page if not report["ok"]]
            if terminal.is_drawn_on():
                terminal.draw([f"{_counted(checked)} checked, {states['damaged']} damaged"], over=drawn)
                drawn = 1
    # Damage outranks files that cannot be read now: only damage needs a decision.
    state = "damaged" if states["damaged"] else "unreadable" if states["unreadable"] else "sound"
    counts = {name: states[name] for name in ("sound", "damaged", "unreadable")}
    return {"state": state, "ok": state == "sound", "checked": dict(checked), **counts, "reports": reports}


def report_of(found: Mapping[str, Any]) -> str:
    """Return unsound objects as a table, the advice about them, and the number of checked objects."""
    rows = [(report["kind"], report["id"], report["state"], *_worst(report)) for report in found["reports"]]
    parts = [formats.table(("kind", "id", "state", "file", "reason"), rows, whole=True)] if rows else []
    advice = [f"{report['id']}: {formats.advice(report)}" for report in found["reports"] if report["advice"]]
    damage = f"{found['damaged']} damaged, {found['unreadable']} cannot be read now"
    return "\n".join([*parts, *advice, f"checked {_counted(found['checked'])}: {damage}"])


def _worst(report: Mapping[str, Any]) -> tuple[str, str]:
    file = next(file for file in report["files"] if file["state"] in ("corrupt", "unreadable"))
    place = "" if file["line"] is None else f"line {file['line']} "
    return file["file"], f"{place}{file['reason']}"


def _counted(checked: Mapping[str, int]) -> str:
    return ", ".join(f"{checked.get(kind, 0)} {name}" for kind, name in _KINDS.items())


def _verified(found: Mapping[str, Any], as_json: bool, text: Callable[[Any], str]) -> int:
    # Distinguish damage from files that cannot be read now.
    terminal.show(found, as_json, text)
    codes = {"sound": exit_codes.ExitCode.DONE, "damaged": exit_codes.ExitCode.FAILED}
    return codes.get(found["state"], exit_codes.ExitCode.CONFIGURATION)
