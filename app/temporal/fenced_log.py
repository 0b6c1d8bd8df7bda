"""The fenced log: a run's log, under one lease after another, that refuses the line of an outdated attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app import errors
from app.domain import decisions, events, plain, runs
from app.domain.records import BlobRef, Record
from app.engine import stores
from app.temporal.replayed_runs import Superseded


class FencedLog:
    """`stores.RunLog` over the log of the present lease, which only accepts the line of the newest attempt."""

    def __init__(self, log: stores.RunLog) -> None:
        self._log = log

    def renew(self, log: stores.RunLog) -> None:
        """Continue under another lease."""
        self._log = log

    @property
    def loaded(self) -> stores.Loaded:
        return self._log.loaded

    async def decide(
        self, kind: decisions.DecisionKind, facts: Mapping[str, plain.Json], *, sync: bool = True, at: str | None = None
    ) -> bool:
        """Append a control line, durably whatever `sync` is.

        A line that waits in memory would be lost with the lease. The workflow would then regard the step as begun, and
        the fence would refuse its result.
        """
        return await self._log.decide(kind, facts, at=at)

    async def append_step(self, line: Mapping[str, plain.Json]) -> Record:
        """Append a line, unless a newer attempt has begun or the step is recorded.

        Raises:
            Superseded: another worker has taken the step over; the line of this attempt is kept as a blob.
        """
        # The check and the append are within one lease, so no other worker writes in between.
        key, attempt, loaded = str(line["key"]), line["attempt"], self._log.loaded
        newest = loaded.decisions.highest_attempt.get(key, 0)
        attempts = loaded.decisions.attempts.get(key, ())
        first = next((begun.lines for begun in attempts if begun.attempt == attempt), 0)
        recorded = any((found.key, found.attempt) == (key, attempt) for found in loaded.records[first:])
        if attempt != newest or recorded or loaded.decisions.ended is not None:
            # The attempt may have cost money, so its line is kept, but never as the record.
            blob = await self._log.put_blob(plain.encode(dict(line)), text=False)
            facts = {"key": key, "attempt": attempt, "usage": line.get("usage"), "blob": blob.to_json()}
            await self._log.decide(decisions.DecisionKind.LATE, facts)
            raise Superseded
        return await self._log.append_step(line)

    # -- as the log of the lease

    async def put_blob(self, content: bytes, *, text: bool) -> BlobRef:
        return await self._log.put_blob(content, text=text)

    async def get_blob(self, blob: BlobRef) -> plain.Json:
        return await self._log.get_blob(blob)

    async def add_receipt(self, record: Record) -> None:
        await self._log.add_receipt(record)

    async def write_log(self, name: str, text: str) -> None:
        await self._log.write_log(name, text)

    async def append_log(self, name: str, text: str) -> None:
        await self._log.append_log(name, text)

    def add_event(
        self,
        type: events.EventType,
        key: str | None = None,
        data: Mapping[str, plain.Json] | None = None,
        at: str | None = None,
    ) -> events.Event:
        return self._log.add_event(type, key, data, at)

    def refresh(self, files: Callable[[], Mapping[str, plain.Json]]) -> None:
        self._log.refresh(files)

    def wait_for(self, fault: errors.Unreadable) -> None:
        self._log.wait_for(fault)

    async def flush(self) -> None:
        await self._log.flush()

    async def move(self, transition: runs.Transition) -> None:
        await self._log.move(transition)

    @property
    def has_pending_move(self) -> bool:
        return self._log.has_pending_move

    async def heal(self) -> None:
        await self._log.heal()

    async def close(self) -> None:
        await self._log.close()

    async def set_aside(self) -> None:
        await self._log.set_aside()
