"""Cleaning: remove the folders of old runs (workflow-dsl, recovery mechanisms)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from app.cli import terminal, use_cases
from app.cli.client import Access
from app.cli.exit_codes import ExitCode
from app.cli.orchestrate import links, places

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.engine import stores

_FORM = re.compile(r"(?P<count>\d{1,6})(?P<unit>[smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_FINISHED = ("done", "failed", "cancelled")


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
    """Remove the runs that ended longer ago than an age; unfinished runs remain."""
    if not (place.data / places.RUNS).is_dir():
        return _report([], 0, dry_run=dry_run, as_json=as_json)

    async def work(client: FolderClient) -> tuple[list[str], int]:
        from app.engine import stores

        store = client.application.store
        found = [run async for run in stores.every_run(store, stores.RunQuery())]
        old = [run for run in found if _age(run) >= older_than]
        # Unfinished runs are counted and kept, however old they are.
        gone = [run.run_id for run in old if run.status in _FINISHED]
        if not dry_run:
            for run_id in gone:
                await client.call(use_cases.delete_run, run_id)
            await store.sweep()
            left = next((run.run_id for run in found if run.run_id not in gone), None)
            links.forget(place, gone, left)
        return gone, len(old) - len(gone)

    gone, unfinished = place.work_here(work, Access.READ if dry_run else Access.CHANGE)
    return _report(gone, unfinished, dry_run=dry_run, as_json=as_json)


def _age(run: stores.RunSummary) -> timedelta:
    from app import clock

    return clock.SystemClock().now() - clock.instant(run.completed_at or run.updated_at)


def _report(gone: list[str], unfinished: int, *, dry_run: bool, as_json: bool) -> int:
    if as_json:
        terminal.say_json({"removed": [] if dry_run else gone, "old": gone, "unfinished": unfinished})
        return ExitCode.DONE
    for run_id in gone:
        terminal.say(f"{'would remove' if dry_run else 'removed'} run {run_id}")
    if not gone:
        terminal.say("no run is old enough")
    if unfinished:
        terminal.warn(f"{unfinished} old runs have not ended and stay")
    return ExitCode.DONE
