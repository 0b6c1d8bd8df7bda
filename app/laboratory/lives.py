"""
Lives: one passage of a process through an experiment, from its start to the end of the run or of itself.

A life is the service without its HTTP interface, which writes nothing: the same composition root, the same lock, the
same recovery.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

from app import bootstrap, clock, errors
from app.control import requests
from app.engine import ports, probes, states
from app.laboratory import diary, portraits
from app.laboratory.experiment import Experiment
from app.storage import directory, opener, store
from app.storage.sql import index

RUN_ID = "20260210T143000Z-crash1"
"""The run of every experiment, so that its files have the same names in each."""

_ADDRESS = "http://laboratory.invalid"
_HASTE = 20
"""How much faster than the clock a life waits, e.g. for room on a disk."""
_WAIT_SECONDS = 10.0
_START_TRIES = 40
_RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """
    What differs between the processes that an experiment is lived in.
    """

    probes: probes.Probes = field(default_factory=probes.NoProbes)
    """Named points."""
    make_store: Callable[..., bootstrap.Store] | None = None
    """Makes the run store; None: run folders, written by one thread of each kind."""
    is_taken: Callable[[], bool] | None = None
    """Tells whether the first run is there; None: its folder tells."""
    watch: Callable[[ports.Performer], ports.Performer] | None = None
    """Puts something around each performer, and around what notes its tries."""
    on_rest: Callable[[bootstrap.Room, str], Awaitable[None]] | None = None
    """Does something about the run once it rests, before its portrait is taken."""


async def live(experiment: Experiment, surroundings: Surroundings = Surroundings()) -> None:
    """
    Ask for the run, or find it, follow it to its rest, and note how it stands then.
    """
    notes = diary.Diary(experiment.diary)
    world = _world(experiment, surroundings, notes)
    async with bootstrap.build(experiment.settings, bootstrap.Use(address=_ADDRESS), world) as room:
        await room.engine.recovered()
        run_id = await _started(room, experiment.request, notes)
        await rest(room, run_id)
        if surroundings.on_rest is not None:
            await surroundings.on_rest(room, run_id)
        portrait = await portraits.of_run(room, run_id)
        experiment.portrait.write_text(json.dumps(portrait), encoding="utf-8")


async def rest(room: bootstrap.Room, run_id: str) -> None:
    """
    Wait until a run has ended, or is parked for a person.
    """
    known: frozenset[str] = frozenset()
    while True:
        ready = await room.runs.wait(run_id, _WAIT_SECONDS, known)
        shown = json.loads(ready.body)
        healing = (shown["error"] or {}).get("code") == errors.StorageFault.default_code
        if ready.finished or (shown["status"] == states.RunState.PAUSED.value and not healing):
            return
        known = frozenset({ready.etag})


class HastyClock(clock.SystemClock):
    """
    The machine's clock, with shorter waits.
    """

    async def sleep(self, seconds: float) -> None:
        """
        Wait for a part of the duration.
        """
        await super().sleep(seconds / _HASTE)


class FirstRunKnown(clock.RandomIds):
    """
    Identifiers at random, but for the first run of a data directory.
    """

    def __init__(self, is_taken: Callable[[], bool]) -> None:
        super().__init__()
        self._is_taken = is_taken

    def run_id(self, at: datetime) -> str:
        """
        Return the known id until there is a run of that name, then random ones.
        """
        return super().run_id(at) if self._is_taken() else RUN_ID


def _world(experiment: Experiment, surroundings: Surroundings, notes: diary.Diary) -> bootstrap.World:
    watch = surroundings.watch or _as_it_is
    return bootstrap.World(
        ids=FirstRunKnown(surroundings.is_taken or (experiment.data_directory / "runs" / RUN_ID).exists),
        clock=HastyClock(),
        probes=surroundings.probes,
        make_store=surroundings.make_store or _in_folders,
        watch=lambda performer: watch(diary.Noted(performer, notes)),
    )


def _as_it_is(performer: ports.Performer) -> ports.Performer:
    return performer


def _in_folders(
    kept: directory.DataDirectory, url: str, world: bootstrap.World, adopt: opener.Adopt
) -> bootstrap.Store:
    # A tracer counts calls thread by thread, so that each file must have one thread that writes it.
    return store.FolderStore(
        kept,
        index.SqlIndex(url),
        clock=world.clock,
        probes=world.probes,
        adopt=adopt,
        threads=store.ThreadCounts(commit=1, other=1),
    )


async def _started(room: bootstrap.Room, request: requests.StartRequest, notes: diary.Diary) -> str:
    for tried in range(_START_TRIES):
        try:
            started = await room.runs.start(request)
        except (errors.NoRoom, errors.StorageFault):
            if tried + 1 == _START_TRIES:
                raise
            await HastyClock().sleep(_RETRY_SECONDS)
            continue
        notes.accepted(started.run_id, started.existed)
        return started.run_id
    raise AssertionError("not reached")
