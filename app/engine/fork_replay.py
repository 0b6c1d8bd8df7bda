"""Fork replay: decides which steps of a run a new run can take over, by a replay of the new run's driver."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app import errors
from app.domain import operations, plain, records, runs
from app.domain.decisions import Decisions
from app.engine import ports, replay, stores
from app.engine.driver_context import DriverContext
from app.engine.driver_scheduler import Ask, DriverScheduler

_LINES_BETWEEN_BREATHS = 64
_CHAIN = ("event", "batch", "prev", "crc32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """How far the steps of a source fit a new run."""

    kept: tuple[records.Record, ...]  # Steps that the new run requests exactly as the source performed them.
    differs: errors.NondeterminismFault | None  # Why the next one does not fit; None if all fit.
    asks: Mapping[str, Ask]  # The open requests of the new run after them.
    conversations: tuple[str, ...]  # Conversations that the kept steps used, as the driver names them.
    finished: bool  # Whether the new run has nothing left to perform.


async def replayed(
    start: runs.RunStart,
    candidates: Sequence[records.Record],
    driver: ports.Driver,
    read_blob: replay.ReadBlob,
    *,
    asks_again: bool = False,
) -> Replayed:
    """Replay steps of a source with the driver of a new run, up to the first that the run would perform differently.

    Args:
        candidates: Finished steps of the source in order.
        read_blob: Reads a blob of the source.
        asks_again: Whether gates are asked anew, so that no step from the first gate on is kept.

    Raises:
        errors.JournalCorrupt: a blob is missing or damaged.
        errors.DriverFault: the driver broke its rules.
    """
    spoken: dict[str, None] = {}

    def note(ask: Ask, _record: records.Record) -> None:
        if isinstance(ask.operation, operations.AgentCall) and ask.operation.agent_session_id is not None:
            spoken[ask.operation.agent_session_id] = None

    context = DriverContext(start, lambda key, facts: None)
    scheduler = DriverScheduler(lambda: driver.drive(context), note)
    loaded = stores.Loaded(start=start, records=candidates, decisions=Decisions(), emitted=frozenset())
    kept_steps: list[records.Record] = []
    differs: errors.NondeterminismFault | None = None
    try:
        scheduler.start()
        await replay.satisfy(scheduler, read_blob)
        for record in candidates:
            try:
                if asks_again:
                    _refuse_gate(scheduler, record)
                await _hand_out(scheduler, record, loaded, read_blob)
            except errors.NondeterminismFault as fault:
                differs = fault
                break
            kept_steps.append(record)
            if len(kept_steps) % _LINES_BETWEEN_BREATHS == 0:
                await asyncio.sleep(0)
        return Replayed(
            kept=tuple(kept_steps),
            differs=differs,
            asks=dict(scheduler.asks),
            conversations=tuple(spoken),
            finished=scheduler.finished,
        )
    finally:
        scheduler.close()


def _refuse_gate(scheduler: DriverScheduler, record: records.Record) -> None:
    ask = scheduler.asks.get(record.key)
    if ask is not None and isinstance(ask.operation, operations.Gate):
        why = "its gates need approvals of their own for every run"
        raise errors.NondeterminismFault(f"{record.key}: {why}", key=record.key, detail={"why": why})


async def _hand_out(
    scheduler: DriverScheduler, record: records.Record, loaded: stores.Loaded, read_blob: replay.ReadBlob
) -> None:
    # Steps that are omitted here may have let a waiting branch start in the source.
    if record.key not in scheduler.asks and scheduler.start_waiting(record.branch):
        await replay.satisfy(scheduler, read_blob)
    replay.hand_out(scheduler, record, loaded)
    await replay.satisfy(scheduler, read_blob)


def living(source: stores.Loaded) -> list[records.Record]:
    """Return the finished, living steps of a run."""
    return [record for record in source.records if record.final and record.position not in source.decisions.dead]


def line(record: records.Record) -> dict[str, plain.Json]:
    """Return a step's journal line as a fork contains it: without usage, since the fork did not pay for it."""
    fields = {name: value for name, value in record.line.items() if name not in _CHAIN}
    return fields | {"taken_over": True, "usage": None}


def source_hash(steps: Sequence[records.Record]) -> str:
    """Return the hash of the journal lines of a source's steps, without a label."""
    return plain.sha256(b"\n".join(plain.canonical(record.line) for record in steps))
