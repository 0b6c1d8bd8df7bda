"""Resumptions: what a resume keeps and asks for next, and the ended runs that are resumed together with it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from app import errors
from app.domain import records, runs, states, views
from app.engine import fork_replay, ports, resume_rules, stores
from app.services.requests import Moved, ResumeRequest, Started, is_child_of, times_again
from app.services.starting import Starter

_ENDED = (states.RunState.FAILED.value, states.RunState.CANCELLED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """What a resume would do."""

    source: stores.Loaded  # The run as it stands.
    start: runs.RunStart  # What it would continue with.
    dead: frozenset[int]  # Positions of the lines that it sets aside.
    candidates: tuple[records.Record, ...]  # Finished steps that it keeps.
    replayed: fork_replay.Replayed  # What the driver makes of them, and asks for next.


class Resumptions:
    """Plan resumes.

    Args:
        resumable: Returns a run whose state lets it be resumed, or refuses it.
    """

    def __init__(
        self,
        store: stores.RunStore,
        starter: Starter,
        drivers: Mapping[str, ports.Driver],
        resumable: Callable[[str], Awaitable[views.RunView]],
    ) -> None:
        self._store = store
        self._starter = starter
        self._drivers = drivers
        self._resumable = resumable

    async def planned(self, run_id: str, wanted: ResumeRequest) -> Resumption:
        """Return what a resume would do, whatever the state of the run.

        Raises:
            errors.NotFound, errors.JournalCorrupt: there is no such run, or it is damaged.
            errors.RequestInvalid, errors.Conflict: as the resume itself, except that the kept steps need not fit.
        """
        source = await self._store.read(run_id)
        overrides = await self._starter.renewed(source.start, wanted)
        start = dataclasses.replace(source.start.overridden(overrides), limits=source.limits)
        dead = frozenset(resume_rules.dead_positions(source, wanted.from_key))
        resume_rules.refuse_outdated(source, dead, start)
        candidates = tuple(record for record in fork_replay.living(source) if record.position not in dead)
        driver = self._drivers.get(start.dialect)
        if driver is None:
            message = f"this version does not know the language {start.dialect!r}"
            raise errors.RequestInvalid(message, code="unknown_dialect")
        read_blob = functools.partial(self._store.read_blob, run_id)
        replayed = await fork_replay.replayed(start, candidates, driver, read_blob)
        return Resumption(source=source, start=start, dead=dead, candidates=candidates, replayed=replayed)

    async def below(self, run_id: str, wanted: ResumeRequest) -> list[str]:
        """Return the failed and cancelled runs that a resumed run would wait for, at any depth, each after those that
        it waits for itself.

        Raises:
            errors.Conflict, errors.RequestInvalid, errors.WrongState: one of them cannot be resumed.
        """
        of_run = stores.RunQuery(parent_run_id=run_id, status=_ENDED)
        ended = [row.run_id async for row in stores.every_run(self._store, of_run) if row.parent_run_id == run_id]
        if not ended:
            return []
        planned = await self.planned(run_id, wanted)
        resumed = dataclasses.replace(planned.start, resumed=True)
        dead = planned.source.decisions.dead | planned.dead
        again = functools.partial(times_again, planned.source.records, dead)
        run_ids: list[str] = []
        for child in ended:
            start = (await self._store.read(child)).start
            for key, ask in planned.replayed.asks.items():
                if is_child_of(start, resumed, key, ask.operation, again):
                    run_ids += [*await self._resumed_with(child, key), child]
        return run_ids

    async def reached(
        self, child: Started, parent: str, resume: Callable[[str, ResumeRequest], Awaitable[Moved]]
    ) -> None:
        """Resume a failed or cancelled run that a resumed run asks for only now, after other steps.

        Nothing is resumed that was resumed since the earlier end of the resumed run, or that began after its resume.
        """
        if child.status.value not in _ENDED:
            return
        above, below = (await self._store.read(parent)).decisions, await self._store.read(child.run_id)
        resumed_at, overruled_at = above.resumed_at or "", above.overruled_at or ""
        if below.start.created_at > resumed_at or (below.decisions.resumed_at or "") > overruled_at:
            return
        try:
            await resume(child.run_id, ResumeRequest())
        except errors.Conflict as error:
            # Its former end, the denial, counts again.
            if error.code != "gate_denied":
                raise

    async def _resumed_with(self, child: str, key: str) -> list[str]:
        try:
            await self._resumable(child)
            await self.planned(child, ResumeRequest())
            return await self.below(child, ResumeRequest())
        except (errors.Conflict, errors.InputRefused) as error:
            error.message = f"run {child}, which the step {key!r} waits for, cannot be resumed: {error.message}"
            raise
