"""Replay: hands the journal's living lines to a driver, forward and once, and detects nondeterminism."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from app import errors
from app.domain import operations, plain
from app.domain.records import BlobRef, Record
from app.engine import ports
from app.engine.driver_scheduler import Ask, DriverScheduler
from app.engine.stores import Loaded

ADOPTED = "adopted"
"""In place of an operation's hash, where a run written by hand was adopted: any operation fits."""

_LINES_BETWEEN_BREATHS = 64

ReadBlob = Callable[[BlobRef], Awaitable[plain.Json]]


async def replay(scheduler: DriverScheduler, loaded: Loaded, read_blob: ReadBlob) -> None:
    """Start a driver and hand it every living final line; nothing is performed.

    Raises:
        errors.NondeterminismFault: the driver does not ask for what a line holds.
    """
    scheduler.start()
    await satisfy(scheduler, read_blob)
    await hand_out_all(scheduler, loaded.records, loaded, read_blob)


async def hand_out_all(
    scheduler: DriverScheduler, lines: Iterable[Record], loaded: Loaded, read_blob: ReadBlob
) -> None:
    """Hand a driver the living final ones among the next lines of its run.

    Raises:
        errors.NondeterminismFault: the driver does not ask for what a line holds.
    """
    for count, record in enumerate(lines):
        if record.position not in loaded.decisions.dead:
            # Where lines are dead, a branch may have had its turn when one was over that is not any more.
            if loaded.decisions.dead and record.key not in scheduler.asks and scheduler.start_waiting(record.branch):
                await satisfy(scheduler, read_blob)
            hand_out(scheduler, record, loaded)
            await satisfy(scheduler, read_blob)
        if count % _LINES_BETWEEN_BREATHS == _LINES_BETWEEN_BREATHS - 1:
            await asyncio.sleep(0)


async def satisfy(scheduler: DriverScheduler, read_blob: ReadBlob) -> None:
    """Let every branch go on until it is blocked, in portions, and answer every open request for a
    content, in order.
    """
    while scheduler.ready or scheduler.reads:
        if scheduler.ready:
            await asyncio.sleep(0)
            scheduler.advance()
        else:
            read = scheduler.reads[0]
            scheduler.answer(read, await read_blob(read.blob))


def hand_out(scheduler: DriverScheduler, record: Record, loaded: Loaded) -> None:
    """Give one line to the branch that asks for its key; an attempt that is not final is only compared.

    Raises:
        errors.NondeterminismFault: no operation matches it, or another operation has its key.
    """
    ask = scheduler.asks.get(record.key)
    if ask is None:
        # A line that no branch asks for means that the driver took another way than in the recorded run. Only a line
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
    """Collect prompts and replies while a run's lines are handed to its driver."""

    def __init__(self, agent_session_ids: Iterable[str]) -> None:
        self._said: dict[str, list[ports.Exchange]] = {name: [] for name in agent_session_ids}

    def note(self, ask: Ask, record: Record) -> None:
        """Take in a line; a prompt without a reply is not part of a conversation."""
        said = self._of(ask)
        if said is not None and record.done and isinstance(ask.operation, operations.AgentCall):
            said.append(ports.Exchange(prompt=ask.operation.prompt, reply=record.output, blob=record.blob))

    def before(self, ask: Ask) -> tuple[ports.Exchange, ...]:
        """Return what was said in the conversation that an open step speaks in."""
        return tuple(self._of(ask) or ())

    def _of(self, ask: Ask) -> list[ports.Exchange] | None:
        operation = ask.operation
        if not self._said or not isinstance(operation, operations.AgentCall) or operation.agent_session_id is None:
            return None
        return self._said.get(operation.agent_session_id)


def _unasked(scheduler: DriverScheduler, record: Record, loaded: Loaded) -> errors.NondeterminismFault:
    asked = list(scheduler.asks) or (["nothing more"] if scheduler.finished else ["nothing yet"])
    first = {key: dict(ask.body) for key, ask in list(scheduler.asks.items())[:5]}
    what = f"line {record.position + 1} of its journal holds the step {record.key!r}, but the recipe's driver asks for"
    return _fault(record, loaded, f"{what} {', '.join(asked[:5])}", first)


def _differs(record: Record, loaded: Loaded, asked_hash: str, asked: object) -> errors.NondeterminismFault:
    what = f"the recipe's driver asks for another operation under the key {record.key!r} than"
    said = f"{what} line {record.position + 1} of its journal holds"
    return _fault(record, loaded, said, {"hash": asked_hash, "body": asked})


def _fault(record: Record, loaded: Loaded, said: str, asked: Mapping[str, Any]) -> errors.NondeterminismFault:
    message = f"run {loaded.start.run_id}: {said}. Nothing was written; the version that began the run continues it."
    recorded = record.line.get("operation")
    facts = {"run_id": loaded.start.run_id, "line": record.position + 1, "recorded": recorded, "asked": asked}
    return errors.NondeterminismFault(message, key=record.key, detail=facts)
