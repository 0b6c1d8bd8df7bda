"""Cleaning: remove the folders of old runs (workflow-dsl, recovery mechanisms)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from app import printable
from app.cli import terminal
from app.cli.client import Access, JsonObject
from app.cli.exit_codes import ExitCode
from app.cli.orchestrate import links, places

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.engine import stores

_FORM = re.compile(r"(?P<count>\d{1,6})(?P<unit>[smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_REASONS = {
    "unfinished": "not ended",
    "pinned": "pinned",
    "needed": "needed by an unfinished run",
    "damaged": "damaged, and may be repaired",
    "copied": "copied here by an import or by hand",
}
"""Why an old run stays, by the reasons of a report of retention."""


def age(text: str) -> timedelta:
    """Read an age: a number and a unit, such as `7d`.

    Raises:
        ValueError: it is not an age.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r:.40} is not an age; write a number and s, m, h, d or w, such as 7d")
    return timedelta(**{_UNITS[found["unit"]]: int(found["count"])})


def clean(place: places.Place, older_than: timedelta, *, dry_run: bool, as_json: bool) -> int:
    """Remove the runs that ended longer ago than an age; those that retention spares, and unfinished ones, remain."""
    found: JsonObject = {"removed": [], "old": [], "unfinished": 0, "kept": {}, "refused": {}}
    if not (place.data / places.RUNS).is_dir():
        return _report(found, dry_run=dry_run, as_json=as_json)

    async def work(client: FolderClient) -> None:
        from app import clock
        from app.domain import authors, retention
        from app.engine import stores
        from app.services import retention as pruning

        # Made here, as the services that a dry run reads with have none.
        runs, store = client.application.runs, client.application.store
        pruner = pruning.Retention(runs, store, store.documents(pruning.FOLDER), clock.SystemClock())
        rule = retention.Rule(older_than_seconds=round(older_than.total_seconds()))
        more = True
        while more:
            report = await pruner.prune(rule, dry_run=dry_run, author=authors.LOCAL)
            found["kept"], found["refused"] = dict(report.kept), dict(report.refused)
            found["old"] += [run.run_id for run in report.runs if run.run_id not in found["old"]]
            more = report.more and report.removed > 0
        rows = [run async for run in stores.every_run(store, stores.RunQuery())]
        found["unfinished"] = sum(run.status not in retention.FINISHED and _age(run) >= older_than for run in rows)
        if not dry_run:
            found["removed"] = [run_id for run_id in found["old"] if run_id not in found["refused"]]
            await store.sweep()
            links.forget(place, found["removed"], next((run.run_id for run in rows), None))

    place.work_here(work, Access.READ if dry_run else Access.CHANGE)
    return _report(found, dry_run=dry_run, as_json=as_json)


def _age(run: stores.RunSummary) -> timedelta:
    from app import clock

    return clock.SystemClock().now() - clock.instant(run.updated_at)


def _report(found: JsonObject, *, dry_run: bool, as_json: bool) -> int:
    if as_json:
        terminal.say_json(found)
    else:
        for run_id in found["old"] if dry_run else found["removed"]:
            terminal.say(f"{'would remove' if dry_run else 'removed'} run {run_id}")
        if not found["old"]:
            terminal.say("no run to remove is old enough")
    for run_id, why in found["refused"].items():
        terminal.warn(f"run {run_id} was not removed: {why}")
    for reason, count in ({"unfinished": found["unfinished"]} | found["kept"]).items():
        if count and not as_json:
            terminal.warn(f"{printable.counted(count, 'old run')} kept: {_REASONS[reason]}")
    return ExitCode.FAILED if found["refused"] else ExitCode.DONE
