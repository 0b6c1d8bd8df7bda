"""Recovery: puts runs that an earlier process left unfinished through the same queue as new runs."""

# A crash between a control line and its row can leave either one ahead of the other. Runs whose row shows
# `paused` are read in the background, after the others are queued; if the journal disagrees, the run is queued like
# any other. So after a roll-back, the older version continues runs that a newer version had to park.

from __future__ import annotations

import logging
from collections.abc import Sequence

from app import clock, errors
from app.domain import states
from app.engine import stores
from app.worker import orphans
from app.worker.active_runs import ActiveRuns
from app.worker.loading import RELOAD_SECONDS

_log = logging.getLogger(__name__)


async def recover(store: stores.RunStore, active: ActiveRuns, timer: clock.Clock) -> list[stores.RunSummary]:
    """Queue every unfinished run of the service, oldest first, and return those that an earlier process left.

    Paused runs stay paused, unless their journal disagrees with their row. Workspaces are granted only once all holders
    are known, since a run holds its workspace through pauses and restarts. If the disk or the index fails, recovery
    retries until it succeeds; runs that are submitted meanwhile are executed.
    """
    rows = [summary for summary in await _unfinished(store, timer) if summary.owner == "service"]
    # The creator of an internal run wakes it when the run has work.
    unfinished = [summary for summary in rows if not clock.is_internal(summary.run_id)]
    for summary in unfinished:
        active.lineage.note(summary)
    readable = [summary for summary in unfinished if summary.unreadable is None]
    # Roots first: which children are lost is known only after their parents are read.
    _queue_or_set_aside(active, [summary for summary in readable if summary.parent_run_id is None])
    children = [summary for summary in readable if summary.parent_run_id is not None]
    lost = await orphans.doomed(store, children)
    # These children are about to be cancelled, and must not begin a step first.
    _set_aside(active, *(summary for summary in children if summary.run_id in lost and not _is_paused(summary)))
    _queue_or_set_aside(active, [summary for summary in children if summary.run_id not in lost])
    for summary in unfinished:
        if summary.run_id in lost:
            continue
        if summary.unreadable is not None:
            _wait_for(active, summary)
        elif summary.exclusive_workspace or summary.concurrency_key or _is_paused(summary):
            await _restore_by_journal(store, active, summary)
    # Runs that were submitted meanwhile belong to this process.
    leftover = [summary for summary in unfinished if summary.run_id not in (active.expected or ())]
    active.know_found()
    return leftover


async def _unfinished(store: stores.RunStore, timer: clock.Clock) -> list[stores.RunSummary]:
    while True:
        try:
            return await store.list_unfinished()
        except errors.StorageFault as fault:
            _log.error("unfinished runs not listed, they wait: %s", fault.message, extra={"code": fault.code})
        await timer.sleep(RELOAD_SECONDS)


def _queue_or_set_aside(active: ActiveRuns, summaries: Sequence[stores.RunSummary]) -> None:
    _set_aside(active, *filter(_may_rest, summaries))
    _queue(active, *(summary for summary in summaries if not _is_paused(summary)))


def _is_paused(summary: stores.RunSummary) -> bool:
    return summary.status == states.RunState.PAUSED


def _queue(active: ActiveRuns, *summaries: stores.RunSummary) -> None:
    # A run that was submitted while the rows were read may have ended since.
    active.queue(*(summary for summary in summaries if summary.run_id not in (active.ended or ())))


def _may_rest(summary: stores.RunSummary) -> bool:
    holds = summary.exclusive_workspace or summary.concurrency_key
    return summary.status == states.RunState.WAITING and not holds


def _set_aside(active: ActiveRuns, *summaries: stores.RunSummary) -> None:
    # These runs do not join the queue; whether they rest is determined once all others are queued.
    for summary in summaries:
        if summary.run_id not in active.active_runs and summary.run_id not in (active.ended or ()):
            active.admit(summary)
            active.unread.add(summary.run_id)


async def _restore_by_journal(store: stores.RunStore, active: ActiveRuns, summary: stores.RunSummary) -> None:
    # Rows may lag behind: for runs that hold a workspace or key, the journal decides.
    try:
        decisions = (await store.read(summary.run_id)).decisions
    except errors.Unreadable:
        _wait_for(active, summary)
        return
    except (errors.ControlRoomError, errors.StorageFault) as error:
        _log.error("not read: %s", error.message, extra={"run_id": summary.run_id, "code": error.code})
        return
    # A run that has begun may have left its workspace half changed.
    if decisions.ended is None and decisions.taken_since_resume:
        active.hold_workspace(summary)
    if decisions.paused is None or decisions.cancel_requested_at is not None:
        _queue(active, summary)


def _wait_for(active: ActiveRuns, summary: stores.RunSummary) -> None:
    # Whether the run holds its workspace is unknown, so no other run gets it meanwhile.
    active.hold_workspace(summary)
    active.reloads.begin(summary.run_id)
