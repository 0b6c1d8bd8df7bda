"""Portions of a run's steps: any range by index, in the form of the run's consolidated answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain import plain, records, views

USUAL = 200  # Default number of steps in a portion.


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """Some finished steps of a run."""

    body: bytes  # JSON of a list of `views.StepShown`.
    etag: str  # Entity tag: the quoted hash of the body.
    last: int | None  # Index of the last step of the portion if more follow; otherwise None.


async def portion(view: views.RunView, after: int, limit: int) -> Portion:
    """Return the valid steps after an index, encoded on a thread.

    Args:
        after: Index of the step before the first, -1 for none.
        limit: Most steps.
    """
    # The lists of a loaded run only grow at their ends, so a thread may read them.
    return await asyncio.to_thread(_portion, view, after, limit)


def _portion(view: views.RunView, after: int, limit: int) -> Portion:
    living = view.living()
    found = living[after + 1 : after + 1 + limit]
    body = plain.encode(views.finished_steps(found, _earlier(view, found)))
    last = after + len(found)
    return Portion(body=body, etag=plain.entity_tag(body), last=last if last + 1 < len(living) else None)


def _earlier(view: views.RunView, found: Sequence[records.Record]) -> views.Attempts:
    """Return the earlier attempts of repeated steps, looking back only to the first attempt of each."""
    repeated = [record for record in found if record.attempt > 1]
    missing, attempts = {record.key for record in repeated}, dict[str, list[records.Record]]()
    position = max((record.position for record in repeated), default=0)
    while missing and position > 0:
        position -= 1
        record = view.records[position]
        if record.key not in missing:
            continue
        if not record.final or record.position in view.dead:
            attempts.setdefault(record.key, []).insert(0, record)
        if record.attempt == 1:
            missing.discard(record.key)
    return attempts
