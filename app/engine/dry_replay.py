"""Dry replay: shows a run at rest by replaying its driver over its journal without performing anything."""

from __future__ import annotations

from collections.abc import Mapping

from app import errors
from app.domain import gates, usage_sums, views
from app.domain.gates import OpenGate
from app.domain.operations import Gate
from app.domain.slots import Board, Progress
from app.engine import open_steps, ports
from app.engine.driver_context import DriverContext
from app.engine.driver_scheduler import Ask, DriverScheduler
from app.engine.replay import ReadBlob, replay
from app.engine.stores import Loaded


async def review(
    loaded: Loaded, driver: ports.Driver | None, read_blob: ReadBlob, *, elsewhere: bool = False
) -> views.RunView:
    """Return a run by its authority.

    Where the present driver does not fit the journal, the board shows only how many steps the journal holds.

    Args:
        elsewhere: Whether another process may be executing it, so that its open steps are shown.

    Raises:
        errors.JournalCorrupt: a blob that the driver reads is missing or wrong.
    """
    view = at_rest(loaded)
    if driver is None:
        return views.on_board(view, _bare(view))
    try:
        context, asks = await _rehearsed(loaded, driver, read_blob)
    except errors.Unreadable:
        raise
    except errors.Fault:
        return views.on_board(view, _bare(view))
    view = views.on_board(view, context.board())
    return open_steps.executed_elsewhere(view, loaded, asks) if elsewhere else view


async def replays(loaded: Loaded, driver: ports.Driver, read_blob: ReadBlob) -> None:
    """Check that a driver requests the operations of the living lines.

    Raises:
        errors.NondeterminismFault, errors.DriverFault: it does not.
    """
    await _rehearsed(loaded, driver, read_blob)


async def asked(loaded: Loaded, driver: ports.Driver, read_blob: ReadBlob) -> list[OpenGate]:
    """Return the gates at which a run without an executing process waits for an answer.

    Empty if the present driver does not fit the journal.
    """
    decided, recorded = loaded.decisions, {(record.key, record.attempt) for record in loaded.records}
    asks = await open_asks(loaded, driver, read_blob)
    tried = {key: (ask, decided.highest_attempt.get(key, 0)) for key, ask in asks.items() if key in decided.asked}
    return [
        OpenGate.of(loaded.start, key, attempt, ask.operation, decided)
        for key, (ask, attempt) in tried.items()
        if isinstance(ask.operation, Gate) and (key, attempt) not in recorded
    ]


async def open_asks(loaded: Loaded, driver: ports.Driver, read_blob: ReadBlob) -> Mapping[str, Ask]:
    """Return what the driver of an unfinished run asks for behind the last line, by step; nothing where the present
    driver does not fit the journal.
    """
    if loaded.decisions.ended is not None:
        return {}
    try:
        return (await _rehearsed(loaded, driver, read_blob))[1]
    except errors.Unreadable:
        raise
    except (errors.Fault, errors.JournalCorrupt):
        return {}


async def _rehearsed(
    loaded: Loaded, driver: ports.Driver, read_blob: ReadBlob
) -> tuple[DriverContext, Mapping[str, Ask]]:
    context = DriverContext(loaded.start, lambda key, facts: None)
    scheduler = DriverScheduler(lambda: driver.drive(context))
    try:
        await replay(scheduler, loaded, read_blob)
        return context, dict(scheduler.asks)
    finally:
        scheduler.close()


def _bare(view: views.RunView) -> Board:
    return Board(progress=Progress(finished_steps=sum(record.done for record in view.living())))


def at_rest(loaded: Loaded) -> views.RunView:
    """Return the view of a run at rest from its journals alone, without its driver."""
    decisions, end_line = loaded.decisions, loaded.decisions.ended
    newest = loaded.records[-1].completed_at if loaded.records else loaded.start.created_at
    return views.RunView(
        start=loaded.start,
        status=decisions.status,
        reason=gates.end_reason(end_line.error, end_line.ending) if end_line else decisions.paused,
        records=loaded.records,
        dead=frozenset(decisions.dead),
        usage=usage_sums.total_usage(loaded.records),
        error=end_line.error if end_line else decisions.pause_error,
        ending=end_line.ending if end_line else None,
        limits=loaded.limits,
        updated_at=max(newest, decisions.last_at or newest),
        paused_at=decisions.paused_at if decisions.paused is not None else None,
        started_at=decisions.first_taken_at,
        completed_at=end_line.at if end_line else None,
    )
