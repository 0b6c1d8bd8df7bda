"""The driver's context: turns calls into requests to the driver scheduler, and keeps what the driver shows."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any

from app.domain import operations, plain
from app.domain.records import BlobRef, Place, Record
from app.domain.runs import RunStart
from app.domain.slots import Board, Progress, Projection, ShownState, Slot
from app.engine import driver_scheduler

_NO_SECRETS = plain.Masker()


class DriverContext:
    """`ports.Context` over the driver scheduler."""

    def __init__(
        self, run: RunStart, emit: Callable[[str, Mapping[str, plain.Json]], None], masker: plain.Masker = _NO_SECRETS
    ) -> None:
        self._run = run
        self._emit = emit
        self._masker = masker
        self._progress = Progress()
        self._slots: dict[str, Slot] = {}
        self._projections: list[Projection] = []

    @property
    def run(self) -> RunStart:
        return self._run

    @types.coroutine
    def perform(
        self, key: str, operation: operations.Operation, place: Place | None = None
    ) -> Generator[Any, Any, Record]:
        # A plain generator resumes one frame; a coroutine that awaits its request would resume two.
        if self._run.replaced is not None:
            operation = _replaced(self._run.replaced, key, operation)
        record: Record = yield driver_scheduler.Ask(key=key, operation=operation, place=place or Place(step_id=key))
        return record

    async def gather(
        self, branches: Mapping[str, Coroutine[Any, Any, Any]], *, limit: int | None = None, fail_fast: bool = True
    ) -> dict[str, Any]:
        results: dict[str, Any] = await driver_scheduler.Fork(branches=branches, limit=limit, fail_fast=fail_fast)
        return results

    async def gate(self, key: str, gate: operations.Gate, place: Place | None = None) -> Record:
        return await self.perform(key, gate, place)

    async def timer(self, key: str, seconds: float) -> Record:
        return await self.perform(key, operations.Timer(seconds=seconds))

    async def read(self, blob: BlobRef) -> plain.Json:
        return await driver_scheduler.Read(blob=blob)

    def fill(self, name: str, slot: Slot) -> None:
        # A record is masked as text; once decoded as JSON, it can contain a secret that was escaped in the text.
        text = self._masker.mask(slot.text)
        self._slots[name] = slot if text is slot.text or text == slot.text else self._without_secrets(slot, text)

    def show(self, progress: Progress) -> None:
        self._progress = progress

    def emit(self, key: str, facts: Mapping[str, plain.Json]) -> None:
        """Report a note to the engine."""
        self._emit(key, self._masker.mask(plain.plain(facts)))

    def project(self, projection: Projection) -> None:
        self._projections.append(projection)

    def board(self) -> Board:
        """Return the visible state; it shares the slots, so read it at once."""
        return Board(progress=self._progress, slots=self._slots)

    def files(self, standing: ShownState) -> dict[str, plain.Json]:
        """Return the contents of the further files of the run folder, by name."""
        contents: dict[str, plain.Json] = {}
        for projection in self._projections:
            contents.update(projection(standing))
        masked: dict[str, plain.Json] = self._masker.mask(contents)
        return masked

    def _without_secrets(self, slot: Slot, text: str) -> Slot:
        sha256, summary = plain.sha256(plain.content(text)), self._masker.mask(slot.summary)
        return dataclasses.replace(slot, text=text, sha256=sha256, summary=summary)


def _replaced(
    fields: Mapping[str, Mapping[str, plain.Json]], key: str, operation: operations.Operation
) -> operations.Operation:
    """Return an operation with the prompt or agent that a fork replaces."""
    replacement = fields.get(key)
    if replacement is None or not isinstance(operation, operations.AgentCall):
        return operation
    # JSON has no tuples, so its lists become tuples again.
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in replacement.items()}
    return dataclasses.replace(operation, **values)  # type: ignore[arg-type]
