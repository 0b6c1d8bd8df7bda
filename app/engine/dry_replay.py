"""Dry replay: replays the driver of a run over its journal to show the run, without performing anything."""

from __future__ import annotations

import dataclasses
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from app import errors
from app.domain import decisions, gates, runs, usage_sums, views
from app.domain.gates import OpenGate
from app.domain.operations import Gate
from app.domain.records import Record
from app.domain.slots import Board, Progress
from app.engine import open_steps, ports
from app.engine.driver_context import DriverContext
from app.engine.driver_scheduler import Ask, DriverScheduler
from app.engine.replay import ReadBlob, hand_out_all, replay
from app.engine.stores import Loaded


class DryReplays:
    """Drivers of unfinished runs that were shown; if a run has grown since, only its new lines are replayed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[str, _DryReplay] = OrderedDict()
        # A branch that has not begun must be closed before it is garbage-collected.
        weakref.finalize(self, _close_all, self._kept)

    def pop(self, loaded: Loaded) -> _DryReplay | None:
        """Remove and return the kept driver of a run, if it can take the run's further lines."""
        # Removed while it is in use, so that two concurrent views never step the same driver.
        kept = self._kept.pop(loaded.start.run_id, None)
        if kept is not None and not kept.fits(loaded):
            kept.scheduler.close()
            return None
        return kept

    def keep(self, dry_replay: _DryReplay) -> None:
        """Keep a driver until its run is shown again, or until enough other runs were shown later."""
        run_id = dry_replay.start.run_id
        if (former := self._kept.pop(run_id, None)) is not None:
            former.scheduler.close()
        self._kept[run_id] = dry_replay
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)[1].scheduler.close()


async def view_of(
    loaded: Loaded,
    driver: ports.Driver | None,
    read_blob: ReadBlob,
    *,
    elsewhere: bool = False,
    dry_replays: DryReplays | None = None,
) -> views.RunView:
    """Return the view of a run from its authority.

    If the present driver does not fit the journal, the board shows only how many steps the journal contains.

    Args:
        elsewhere: Whether another process may be executing the run, so that its open steps are shown.
        dry_replays: Keeps the driver for the next view of the run.

    Raises:
        errors.JournalCorrupt: a blob that the driver reads is missing or wrong.
    """
    view = view_without_driver(loaded)
    if driver is None:
        return views.on_board(view, _bare(view))
    try:
        board, asks = await _replayed(loaded, driver, read_blob, dry_replays)
    except errors.Unreadable:
        raise
    except errors.Fault:
        return views.on_board(view, _bare(view))
    view = views.on_board(view, board)
    return open_steps.executed_elsewhere(view, loaded, asks) if elsewhere else view


async def replays(loaded: Loaded, driver: ports.Driver, read_blob: ReadBlob) -> None:
    """Check that a driver requests the operations that the living lines record.

    Raises:
        errors.NondeterminismFault, errors.DriverFault: it does not.
    """
    await _replayed(loaded, driver, read_blob)


async def asked(loaded: Loaded, driver: ports.Driver, read_blob: ReadBlob) -> list[OpenGate]:
    """Return the gates at which a run without an executing process waits for an answer.

    The list is empty if the present driver does not fit the journal.
    """
    decided, recorded = loaded.decisions, {(record.key, record.attempt) for record in loaded.records}
    asks = await open_asks(loaded, driver, read_blob)
    return [
        OpenGate.of(loaded.start, key, decided.highest_attempt[key], ask.operation, decided)
        for key, ask in asks.items()
        if isinstance(ask.operation, Gate) and decided.awaits(key, recorded)
    ]


async def open_asks(loaded: Loaded, driver: ports.Driver, read_blob: ReadBlob) -> Mapping[str, Ask]:
    """Return the open requests of an unfinished run's driver after the last line, by step.

    The result is empty if the present driver does not fit the journal.
    """
    if loaded.decisions.ended is not None:
        return {}
    try:
        return (await _replayed(loaded, driver, read_blob))[1]
    except errors.Unreadable:
        raise
    except (errors.Fault, errors.JournalCorrupt):
        return {}


@dataclass(slots=True, kw_only=True, eq=False)
class _DryReplay:
    start: runs.RunStart
    dead: frozenset[int]
    context: DriverContext
    scheduler: DriverScheduler
    handed_out: int = 0
    last: Record | None = None

    def fits(self, loaded: Loaded) -> bool:
        # Lines read once stay the same objects as long as only new ones are read.
        known = loaded.records[self.handed_out - 1 : self.handed_out] if self.handed_out else [None]
        same = self.start == loaded.start and self.dead == loaded.decisions.dead
        return same and len(known) == 1 and known[0] is self.last

    async def advance(self, loaded: Loaded, read_blob: ReadBlob) -> None:
        new = loaded.records[self.handed_out :]
        if self.handed_out:
            await hand_out_all(self.scheduler, new, loaded, read_blob)
        else:
            await replay(self.scheduler, loaded, read_blob)
        if new:
            self.handed_out, self.last = self.handed_out + len(new), new[-1]


async def _replayed(
    loaded: Loaded, driver: ports.Driver, read_blob: ReadBlob, dry_replays: DryReplays | None = None
) -> tuple[Board, Mapping[str, Ask]]:
    dry_replay = (dry_replays and dry_replays.pop(loaded)) or _begun(loaded, driver)
    # An error leaves a driver between two lines, from where no later view can continue.
    is_kept = False
    try:
        await dry_replay.advance(loaded, read_blob)
        board = dry_replay.context.board()
        found = dataclasses.replace(board, slots=dict(board.slots)), dict(dry_replay.scheduler.asks)
        is_kept = bool(dry_replays and dry_replay.handed_out) and loaded.decisions.ended is None
    finally:
        if not is_kept:
            dry_replay.scheduler.close()
    if dry_replays is not None and is_kept:
        dry_replays.keep(dry_replay)
    return found


def _begun(loaded: Loaded, driver: ports.Driver) -> _DryReplay:
    context = DriverContext(loaded.start, lambda key, facts: None)
    scheduler = DriverScheduler(lambda: driver.drive(context))
    return _DryReplay(start=loaded.start, dead=loaded.decisions.dead, context=context, scheduler=scheduler)


def _close_all(kept: Mapping[str, _DryReplay]) -> None:
    for dry_replay in kept.values():
        dry_replay.scheduler.close()


def _bare(view: views.RunView) -> Board:
    return Board(progress=Progress(finished_steps=sum(record.done for record in view.living())))


def view_without_driver(loaded: Loaded) -> views.RunView:
    """Return the view of a run from its journals alone."""
    decided, end_line = loaded.decisions, loaded.decisions.ended
    newest = loaded.records[-1].completed_at if loaded.records else loaded.start.created_at
    return views.RunView(
        start=loaded.start,
        status=decided.status,
        reason=gates.end_reason(end_line.error, end_line.ending) if end_line else _why(decided),
        records=loaded.records,
        dead=frozenset(decided.dead),
        usage=usage_sums.UsageTally(loaded.records).total,
        error=end_line.error if end_line else decided.pause_error,
        ending=end_line.ending if end_line else None,
        limits=loaded.limits,
        updated_at=max(newest, decided.last_at or newest),
        paused_at=decided.paused_at if decided.paused is not None else None,
        placed=views.Placed.of(decided),
        started_at=decided.first_taken_at,
        completed_at=end_line.at if end_line else None,
    )


def _why(decided: decisions.Decisions) -> str | None:
    return decisions.CANCELLING if decided.cancel_requested_at is not None else decided.paused
