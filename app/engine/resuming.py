"""Resuming: writes the lines by which a stopped run is resumed, after checking the request."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping

from app import clock, errors
from app.domain import authors, decisions, gates, plain, runs, slots, views
from app.engine import dry_replay, ports, run_engine, stores
from app.engine.run_equipment import Equipment

Drivers = Mapping[str, ports.Driver]

_log = logging.getLogger(__name__)


async def resume(log: stores.RunLog, how: run_engine.Resume, drivers: Drivers, equipment: Equipment) -> None:
    """Record that a run is resumed; its row shows it as unfinished before the line is durable.

    Raises:
        errors.Conflict: `gate_denied`, `approval_outdated`.
        errors.RequestInvalid: there is no such step; `recipe_differs`: the kept steps do not fit the overrides.
        errors.StorageFault: the resume could not be made durable.
    """
    # The start of a service does not need it.
    from app.engine import resume_rules

    dead = resume_rules.dead_positions(log.loaded, how.from_key)
    sent_on = _sent_on(log.loaded, dead, how.overrides)
    resume_rules.refuse_outdated(log.loaded, dead, sent_on.start)
    if how.overrides:
        await _make_sure_it_replays(sent_on, drivers, log, equipment)
    spans: plain.Json = decisions.ranges(dead)
    equipment.probes.reach("pool.before_resume")
    who = authors.facts(how.author)
    await _decide(log, {"dead": spans, "overrides": dict(how.overrides), **who}, clock.stamp(equipment.clock.now()))
    equipment.probes.reach("pool.after_resume")
    await show(log, dataclasses.replace(sent_on, decisions=log.loaded.decisions), drivers)


async def queue(log: stores.RunLog, drivers: Drivers, at: str) -> None:
    """Show a run as queued after its journal records that it continues."""
    try:
        await log.move(runs.Transition.queue(log.loaded.start.run_id, at))
    except errors.StorageFault as fault:
        _say_outdated(log, fault)
    await show(log, log.loaded, drivers)


async def show(log: stores.RunLog, loaded: stores.Loaded, drivers: Drivers) -> None:
    """Update the snapshots of a run that now waits in the queue."""
    try:
        view = await dry_replay.view_of(loaded, drivers.get(loaded.start.dialect), log.get_blob)
    except (errors.ControlRoomError, errors.StorageFault) as fault:
        _say_outdated(log, fault)
        return
    log.refresh(lambda: {"run.json": views.manifest(view), "cache.json": slots.snapshot(view.board.slots)})


def _say_outdated(log: stores.RunLog, fault: errors.ControlRoomError | errors.StorageFault) -> None:
    # The order is durable. If it failed here, its caller would not queue the run.
    run_id = log.loaded.start.run_id
    _log.warning("shown as it was before: %s", fault.message, extra={"run_id": run_id, "code": fault.code})


def _sent_on(loaded: stores.Loaded, dead: set[int], overrides: Mapping[str, plain.Json]) -> stores.Loaded:
    return dataclasses.replace(
        loaded,
        start=loaded.start.overridden(overrides),
        decisions=dataclasses.replace(loaded.decisions, dead=loaded.decisions.dead | dead),
    )


async def _make_sure_it_replays(
    sent_on: stores.Loaded, drivers: Drivers, log: stores.RunLog, equipment: Equipment
) -> None:
    driver = drivers.get(sent_on.start.dialect)
    if driver is None:
        raise errors.RequestInvalid(
            f"this version does not know the language {sent_on.start.dialect!r}", code="unknown_dialect"
        )
    try:
        await dry_replay.replays(sent_on, driver, log.get_blob)
    except (errors.NondeterminismFault, errors.DriverFault) as fault:
        # The old recipe may name other secrets than the new one, and messages quote lines of both.
        hiding = equipment.hiding_for(driver, log.loaded.start.recipe).hiding_for(driver, sent_on.start.recipe)
        masked = hiding.masker.mask_cut(plain.plain(fault.to_json()))
        raise errors.RequestInvalid(
            misfit(log.loaded.start, sent_on.start, fault.key, masked["message"]),
            code="recipe_differs",
            key=fault.key,
            detail=masked["detail"],
        ) from fault


def misfit(before: runs.RunStart, after: runs.RunStart, key: str | None, difference: str) -> str:
    """Return why a resume with changes is refused, and what works instead.

    Args:
        key: Finished step that the changed run would not perform as its journal has it.
        difference: What the replay found, for a run of which nothing was changed.
    """
    changed = [
        f"the {what} {name}"
        for what, old, new in (("argument", before.args, after.args), ("option", before.options, after.options))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    changed += ["the recipe's current version"] if before.recipe_sha256 != after.recipe_sha256 else []
    if key is None or not changed:
        return f"the steps that the run keeps do not fit: {difference}"
    what = " or ".join(changed)
    return (
        f"{what} changes the finished step {key!r}, which a resume would keep; nothing was written. "
        f"Perform it again with --from {key} (`from` in the request), or fork the run with the same changes"
    )


async def _decide(log: stores.RunLog, facts: dict[str, plain.Json], at: str) -> None:
    run_id, end_line = log.loaded.start.run_id, log.loaded.decisions.ended
    # The row is written first: recovery reads the journal of a run that its row shows as unfinished, but not of one
    # that it shows as ended. After a crash the line may therefore be missing, but not the row.
    await log.move(runs.Transition.queue(run_id, at))
    try:
        await log.decide(decisions.DecisionKind.RESUMED, facts)
    except errors.StorageFault:
        if end_line is not None:
            code = end_line.error["code"] if end_line.error else None
            reason = gates.end_reason(end_line.error, end_line.ending)
            await log.move(runs.Transition.end(run_id, end_line.status, end_line.at, code, reason))
        raise
