"""The inbox: the open gates of all runs, from memory if they are loaded and otherwise from their folders."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from app import errors
from app.domain import gates, runs, states
from app.domain.access import Scope
from app.engine import dry_replay, ports, run_engine, stores

Position: TypeAlias = tuple[str, str, str, str]
"""Place in the inbox: creation time of the run, run, time of the question, and step."""

_ASKING = (states.RunState.WAITING, states.RunState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateQuery:
    """Filter of the inbox: gates of the oldest run come first, and those of one run in the order in which it asked."""

    run_id: str | None = None  # Only gates of this run.
    recipe_id: str | None = None  # Only gates of runs of this recipe.
    label: tuple[str, str] | None = None  # Only gates of runs with this label.
    session_id: str | None = None  # Only gates of runs of this work session.
    scope: Scope | None = None  # Only gates of runs in this scope; None: of all runs.
    limit: int = 100  # Most gates to return.
    cursor: Position | None = None  # Place of the last gate of the previous page.


class GateInbox:
    """Finds open gates."""

    def __init__(
        self, *, store: stores.RunStore, engine: run_engine.RunEngine, drivers: Mapping[str, ports.Driver]
    ) -> None:
        self._store = store
        self._engine = engine
        self._drivers = drivers

    async def page(self, query: GateQuery) -> tuple[list[gates.OpenGate], bool]:
        """Return a page of open gates, and whether more follow."""
        found: list[gates.OpenGate] = []
        async for open_gate in self._open_gates(query):
            # One gate more than the page shows whether others follow.
            if query.cursor is None or position(open_gate) > query.cursor:
                found.append(open_gate)
            if len(found) > query.limit:
                break
        return found[: query.limit], len(found) > query.limit

    async def open_gates_in(self, loaded: stores.Loaded) -> list[gates.OpenGate]:
        """Return the open gates of a run from its folder alone; a paused run asks again later."""
        driver = self._drivers.get(loaded.start.dialect)
        if driver is None:
            return []
        return await dry_replay.asked(loaded, driver, functools.partial(self._store.read_blob, loaded.start.run_id))

    async def _open_gates(self, query: GateQuery) -> AsyncIterator[gates.OpenGate]:
        living = _by_run(
            open_gate for open_gate in self._engine.open_gates(query.run_id) if _fits(open_gate.start, query)
        )
        unloaded = [row for row in await self._unloaded(query) if row.run_id not in living]
        places = [(of_run[0].start.created_at, run_id) for run_id, of_run in living.items()]
        places += [(row.created_at, row.run_id) for row in unloaded]
        for place in sorted(places):
            if query.cursor is None or place >= query.cursor[:2]:
                for open_gate in sorted(living.get(place[1]) or await self._gates_of_unloaded(place[1]), key=position):
                    yield open_gate

    async def _unloaded(self, query: GateQuery) -> list[stores.RunSummary]:
        """Return the runs that may have asked and whose questions are not loaded here."""
        rows = await self._row(query) if query.run_id else await self._rows(query)
        # If the row shows waiting, the run is unloaded, is about to ask, or has just been answered.
        # A run whose folder was copied here asks once a resume has taken it over.
        ours = (row for row in rows if row.owner != "foreign")
        return [row for row in ours if row.status == states.RunState.WAITING or self._engine.view(row.run_id) is None]

    async def _row(self, query: GateQuery) -> list[stores.RunSummary]:
        try:
            row = await self._store.summary(query.run_id or "")
        except errors.NotFound:
            return []
        return [row] if row.status in _ASKING and _fits(row, query) else []

    async def _rows(self, query: GateQuery) -> list[stores.RunSummary]:
        wanted = stores.RunQuery(
            recipe_id=query.recipe_id, label=query.label, session_id=query.session_id, scope=query.scope
        )
        of_states = [dataclasses.replace(wanted, status=state.value) for state in _ASKING]
        return [row for of_state in of_states async for row in stores.every_run(self._store, of_state)]

    async def _gates_of_unloaded(self, run_id: str) -> list[gates.OpenGate]:
        try:
            loaded = await self._store.read(run_id)
        except (errors.ControlRoomError, errors.StorageFault):
            # The run was removed meanwhile, or cannot be read; the run itself reports that.
            return []
        decided = loaded.decisions
        return [] if decided.paused or decided.cancel_requested_at else await self.open_gates_in(loaded)


def position(open_gate: gates.OpenGate) -> Position:
    """Return a gate's place in the inbox."""
    return open_gate.start.created_at, open_gate.run_id, open_gate.asked_at or "", open_gate.key


def _by_run(open_gates: Iterable[gates.OpenGate]) -> dict[str, list[gates.OpenGate]]:
    grouped: dict[str, list[gates.OpenGate]] = {}
    for gate in open_gates:
        grouped.setdefault(gate.run_id, []).append(gate)
    return grouped


def _fits(run: runs.RunStart | stores.RunSummary, query: GateQuery) -> bool:
    if query.scope is not None and not query.scope.covers(run.recipe_id, run.labels):
        return False
    labelled = query.label is None or run.labels.get(query.label[0]) == query.label[1]
    return labelled and query.recipe_id in (None, run.recipe_id) and query.session_id in (None, run.session_id)
