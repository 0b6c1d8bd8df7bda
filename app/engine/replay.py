"""Replay: gives the journal's living lines to a driver, once and in order, and detects nondeterminism."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from app import errors
from app.domain import operations, plain
from app.domain.records import BlobRef, Record
from app.engine import agent_ports
from app.engine.driver_scheduler import Ask, DriverScheduler
from app.engine.stores import Loaded

ADOPTED = "adopted"
"""Replaces an operation's hash in the lines of an adopted run that was written by hand: any operation matches."""

_LINES_BETWEEN_BREATHS = 64

ReadBlob = Callable[[BlobRef], Awaitable[plain.Json]]


async def replay(scheduler: DriverScheduler, loaded: Loaded, read_blob: ReadBlob) -> None:
    """Start a driver and give it every living final line, without performing anything.

    Raises:
        errors.NondeterminismFault: the driver does not request what a line records.
    """
    scheduler.start()
    await satisfy(scheduler, read_blob)
    await hand_out_all(scheduler, loaded.records, loaded, read_blob)


async def hand_out_all(
    scheduler: DriverScheduler, lines: Iterable[Record], loaded: Loaded, read_blob: ReadBlob
) -> None:
    """Give a driver the living, final lines among further lines of its run.

    Raises:
        errors.NondeterminismFault: the driver does not request what a line records.
    """
    for count, record in enumerate(lines):
        if record.position not in loaded.decisions.dead:
            # Once lines are dead, a branch may have to start although the branch that made way for it has not ended.
            if loaded.decisions.dead and record.key not in scheduler.asks and scheduler.start_waiting(record.branch):
                await satisfy(scheduler, read_blob)
            hand_out(scheduler, record, loaded)
            await satisfy(scheduler, read_blob)
        if count % _LINES_BETWEEN_BREATHS == _LINES_BETWEEN_BREATHS - 1:
            await asyncio.sleep(0)


async def satisfy(scheduler: DriverScheduler, read_blob: ReadBlob) -> None:
    """Advance every branch until it is blocked, in portions, and answer the requests for contents in order."""
    while scheduler.ready or scheduler.reads:
        if scheduler.ready:
            await asyncio.sleep(0)
            scheduler.advance()
        else:
            request = scheduler.reads[0]
            scheduler.answer(request, await read_blob(request.blob))


def hand_out(scheduler: DriverScheduler, record: Record, loaded: Loaded) -> None:
    """Give one line to the branch that requests its key; a line that is not final is only compared.

    Raises:
        errors.NondeterminismFault: no request matches it, or another operation has its key.
    """
    ask = scheduler.asks.get(record.key)
    if ask is None:
        # A line that no branch requests shows that the driver diverged from the recorded run. Only a line
        # of a branch that a failing sibling has cancelled is expected here.
        if not scheduler.was_cancelled(record.branch):
            raise _unasked(scheduler, record, loaded)
        return
    adopted = loaded.start.adopted and record.operation == ADOPTED
    if ask.fingerprint != record.operation and not adopted:
        raise _differs(record, loaded, ask.fingerprint, ask.body)
    if record.final:
        scheduler.deliver(record)


class Exchanges:
    """Collects prompts and replies while a run's lines are given to its driver."""

    def __init__(self, agent_session_ids: Iterable[str]) -> None:
        self._said: dict[str, list[agent_ports.Exchange]] = {name: [] for name in agent_session_ids}

    def note(self, ask: Ask, record: Record) -> None:
        """Add a line; a prompt without a reply does not belong to a conversation."""
        exchanges = self._of(ask)
        if exchanges is not None and record.done and isinstance(ask.operation, operations.AgentCall):
            exchanges.append(agent_ports.Exchange(prompt=ask.operation.prompt, reply=record.output, blob=record.blob))

    def before(self, ask: Ask) -> tuple[agent_ports.Exchange, ...]:
        """Return the earlier exchanges of the conversation that an open step uses."""
        return tuple(self._of(ask) or ())

    def _of(self, ask: Ask) -> list[agent_ports.Exchange] | None:
        operation = ask.operation
        if not self._said or not isinstance(operation, operations.AgentCall) or operation.agent_session_id is None:
            return None
        return self._said.get(operation.agent_session_id)


def _unasked(scheduler: DriverScheduler, record: Record, loaded: Loaded) -> errors.NondeterminismFault:
    requests = list(scheduler.asks) or (["nothing more"] if scheduler.finished else ["nothing yet"])
    first = {key: dict(ask.body) for key, ask in list(scheduler.asks.items())[:5]}
    what = f"line {record.position + 1} of its journal holds the step {record.key!r}, but the recipe's driver asks for"
    return _fault(record, loaded, f"{what} {', '.join(requests[:5])}", first)


def _differs(record: Record, loaded: Loaded, asked_hash: str, body: object) -> errors.NondeterminismFault:
    what = f"the recipe's driver asks for another operation under the key {record.key!r} than"
    difference = f"{what} line {record.position + 1} of its journal holds"
    return _fault(record, loaded, difference, {"hash": asked_hash, "body": body})


def _fault(record: Record, loaded: Loaded, difference: str, request: Mapping[str, Any]) -> errors.NondeterminismFault:
    message = (
        f"run {loaded.start.run_id}: {difference}. Nothing was written; the version that began the run continues it."
    )
    recorded = record.line.get("operation")
    facts = {"run_id": loaded.start.run_id, "line": record.position + 1, "recorded": recorded, "asked": request}
    return errors.NondeterminismFault(message, key=record.key, detail=facts)
