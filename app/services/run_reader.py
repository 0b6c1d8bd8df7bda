"""Reading runs: from memory while they are loaded, otherwise by dry replay, never from projections."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import re
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app import clock, errors
from app.domain import allowed_orders, budgets, decisions, plain, records, runs, shapes, slots, states, views
from app.domain.limits import NO_LIMITS
from app.engine import aio, stores
from app.services import output_times, requests

if TYPE_CHECKING:
    from app.engine import dry_replay, ports, run_engine

READY_ANSWERS = 256  # Runs whose last answer is cached as bytes.
STORED_VIEWS = 16  # Runs at rest whose view is cached, and growing runs whose driver is cached.
COUNTED_SECONDS = 1.0
"""Time for which an answer about a run with limits is valid if other processes make calls of it or of its children."""

ENDING_SECONDS = 5.0
"""Longest wait until the ending of a run is in all its files; on a failing disk it is reported earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The consolidated answer of a run, as bytes."""

    body: bytes  # JSON, as `RunResponseCache` encodes it.
    etag: str  # Entity tag: the quoted hash of the body.
    finished: bool  # Whether the run has ended.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cached:
    number: int
    answer: Ready
    cache: RunResponseCache | None
    signs: tuple[object, ...] = ()
    counted_until: float = math.inf


class RunReader:
    """Shows runs, loaded or not."""

    def __init__(
        self,
        *,
        store: stores.RunStore,
        engine: run_engine.RunEngine,
        drivers: Mapping[str, ports.Driver],
        clock: clock.Clock,
    ) -> None:
        self._store = store
        self._clock = clock
        self._engine = engine
        self._drivers = drivers
        self._answers: OrderedDict[str, _Cached] = OrderedDict()
        self._stored_views: OrderedDict[tuple[str, int], asyncio.Task[views.RunView]] = OrderedDict()
        self._dry_replays: dry_replay.DryReplays | None = None
        self._forgotten = 0
        self._outputs = output_times.OutputTimes(engine, clock)

    async def ready(self, run_id: str, last: views.RunView | None = None, *, fresh: bool = True) -> Ready:
        """Return a run's consolidated answer; the same bytes until it changes.

        Args:
            last: The run's view when it left the engine, if the caller has it.
            fresh: Whether to query other processes for the last output of their steps; a waiting poll must not.

        Raises:
            errors.NotFound: the run does not exist.
        """
        check_run_id(run_id)
        if fresh:
            await self._outputs.refresh(run_id)
        number = self._engine.change_number(run_id)
        cached = self._answers.get(run_id)
        # Outputs do not raise the number: no poll waits for them, and they change the answer at most once a second.
        spending = self._engine.spending
        signs = (*_signs(self._engine.view(run_id)), self._outputs.known(run_id), spending and spending.shown(run_id))
        is_current = cached is not None and (cached.number, cached.signs) == (number, signs)
        is_current = is_current and self._store.unreadable(run_id) is None
        is_current = is_current and cached is not None and self._clock.monotonic() < cached.counted_until
        if cached is not None and is_current and not await self._was_touched(run_id):
            self._answers[run_id] = cached
            self._answers.move_to_end(run_id)
            return cached.answer
        forgotten, (view, holder, keep) = self._forgotten, await self._shown(run_id, last)
        if (unreadable := self._store.unreadable(run_id) or view.unreadable) is not None:
            view, keep = dataclasses.replace(view, unreadable=unreadable), False
        view = await self._outputs.shown(view)
        cache = (cached.cache if cached else None) or RunResponseCache()
        budget = await spending.counted(run_id, view.limits) if spending and view.limits != NO_LIMITS else None
        body, finished = cache.encoded(view, holder, budget), view.status.finished
        answer = Ready(body=body, etag=plain.entity_tag(body), finished=finished)
        if keep and forgotten == self._forgotten:
            cache_kept = None if finished else cache
            until = self._counted_until(budget is not None and not finished)
            self._answers[run_id] = _Cached(
                number=number, answer=answer, cache=cache_kept, signs=signs, counted_until=until
            )
            _limit(self._answers, READY_ANSWERS)
        return answer

    def number(self, run_id: str, etags: frozenset[str]) -> int | None:
        """Return the change number at a run's last answer if the run had not ended and the caller has that answer."""
        cached = self._answers.get(run_id)
        return cached.number if cached and not cached.answer.finished and cached.answer.etag in etags else None

    async def view(self, run_id: str) -> views.RunView:
        """Return a run's present state.

        Raises:
            errors.NotFound: the run does not exist.
            errors.JournalCorrupt: its journal is damaged.
        """
        check_run_id(run_id)
        live = await self._live(run_id)
        if live is not None:
            return live
        await self._was_touched(run_id)
        view = await self._stored_view(run_id)
        if view.status.finished and (self._engine.elsewhere or not _is_ours(view)):
            await self._listed(run_id)
        if view.status is states.RunState.PAUSED and self._engine.standing(run_id) is not None:
            # Its folder was changed while it rests, and lacks lines. Without a reload the run would notice only when
            # its answer arrives.
            await self._engine.reload(run_id)
        # The run may have been loaded while its folder was read, and its own view is newer.
        live, standing = await self._live(run_id), self._engine.standing(run_id)
        if live is not None:
            return live
        return view if standing is None else _standing(view, standing)

    async def start(self, run_id: str) -> runs.RunStart:
        """Return the start of a run.

        Raises:
            errors.NotFound, errors.JournalCorrupt: as `view`.
        """
        check_run_id(run_id)
        live = self._engine.view(run_id)
        return live.start if live is not None else (await self._store.read(run_id)).start

    async def status(self, run_id: str) -> states.RunState:
        """Return a run's state.

        Raises:
            errors.NotFound: the run does not exist.
        """
        check_run_id(run_id)
        present = await self._live(run_id) or self._engine.standing(run_id)
        return present.status if present is not None else states.RunState((await self._store.summary(run_id)).status)

    async def moved(self, run_id: str) -> requests.Moved:
        """Return a run's state after a command, consistent with `ready`.

        Raises:
            errors.NotFound: the run does not exist.
        """
        present = await self._live(run_id) or self._engine.standing(run_id) or (await self._shown(run_id, None))[0]
        return requests.Moved(run_id=run_id, status=present.status, reason=present.reason)

    def is_in_flight(self, run_id: str) -> bool:
        """Return whether steps of a run are being performed."""
        view = self._engine.view(run_id)
        return view is not None and bool(view.open)

    async def slot(self, run_id: str, name: str) -> dict[str, plain.Json]:
        """Return a slot: the facts of a pointer, or an artifact with its complete text (execution-modes, appendix D).

        Raises:
            errors.NotFound: the run does not exist, or `slot_not_found`, which names the slots.
        """
        view = await self.view(run_id)
        slot = view.board.slots.get(name)
        if slot is None:
            there = list(view.board.slots)
            message = f"run {run_id} has no slot {name!r:.80}; its slots: {', '.join(there) or 'none yet'}"
            raise errors.NotFound(message, code="slot_not_found", detail={"slots": there})
        return await self._slot(run_id, name, slot)

    def forget(self, run_id: str) -> None:
        """Drop the cached state of a run; requests under way still get an answer."""
        self._forgotten += 1
        self._answers.pop(run_id, None)
        for place in [place for place in self._stored_views if place[0] == run_id]:
            del self._stored_views[place]

    def _counted_until(self, is_limited: bool) -> float:
        # Other processes do not report here the calls of runs below this one.
        changes = is_limited and self._engine.elsewhere
        return self._clock.monotonic() + COUNTED_SECONDS if changes else math.inf

    async def _was_touched(self, run_id: str) -> bool:
        if self._engine.view(run_id) is not None or not await self._store.rechecks.touched([run_id]):
            return False
        self.forget(run_id)
        return True

    async def _listed(self, run_id: str) -> None:
        # The process that ends a run writes its row last, and a client that receives the ending may list runs next.
        for _ in range(100):
            if states.RunState((await self._store.summary(run_id)).status).finished:
                break
            await self._clock.sleep(ENDING_SECONDS / 100)

    async def _live(self, run_id: str) -> views.RunView | None:
        view = await self._consistent_view(run_id)
        if view is None or not view.replaying:
            return view
        # Otherwise a client that polls while an ended run is loaded would see it as done, without steps and slots.
        return dataclasses.replace(view, board=(await self._stored_view(run_id)).board, replaying=False)

    async def _consistent_view(self, run_id: str) -> views.RunView | None:
        view = self._engine.view(run_id)
        if view is None or not view.status.finished:
            return view
        # A client that receives an ending may read the folder or the list next, so these must show it first.
        await aio.wait_first(self._engine.ended(run_id), self._clock.sleep(ENDING_SECONDS))
        return self._engine.view(run_id) or (view if self._is_unloaded(run_id, view) else None)

    def _is_unloaded(self, run_id: str, last: views.RunView) -> bool:
        # A damaged run is shown as failed although it has not ended; only its folder shows whether it was repaired.
        is_absent = self._engine.view(run_id) is None and self._engine.standing(run_id) is None
        return is_absent and last.status.finished and last.ending is not None

    async def _shown(self, run_id: str, last: views.RunView | None) -> tuple[views.RunView, str | None, bool]:
        if last is not None and self._is_unloaded(run_id, last):
            return last, None, _is_ours(last)
        try:
            view = await self.view(run_id)
        except (errors.JournalCorrupt, errors.RequestInvalid, errors.Unreadable) as error:
            from app.services import stored_views

            return stored_views.of_row(await self._store.summary(run_id), error), None, False
        standing = self._engine.standing(run_id)
        if standing is None and (remote := self._engine.remote) is not None and self._is_pending_elsewhere(view):
            standing = await remote.standing(run_id)
            view = view if standing is None else _standing(view, standing)
        return view, standing.holder if standing else None, self._is_kept(view)

    async def _stored_view(self, run_id: str) -> views.RunView:
        version = (run_id, self._engine.change_number(run_id))
        if version not in self._stored_views:
            self._stored_views[version] = asyncio.ensure_future(self._read_stored_view(run_id))
        self._stored_views.move_to_end(version)
        try:
            view = await asyncio.shield(self._stored_views[version])  # A named task would form a cycle with its error.
        except BaseException:
            self._stored_views.pop(version, None)
            raise
        if not self._is_kept(view):
            self._stored_views.pop(version, None)
        _limit(self._stored_views, STORED_VIEWS)
        return view

    def _is_pending_elsewhere(self, view: views.RunView) -> bool:
        return view.status is states.RunState.PENDING and self._engine.elsewhere

    def _is_kept(self, view: views.RunView) -> bool:
        # A change in the other run does not change the one that waits for it. A worker shows a pause without a line.
        pauses = self._engine.elsewhere and view.reason == decisions.PAUSING
        return _is_ours(view) and not pauses and not self._is_pending_elsewhere(view)

    async def _read_stored_view(self, run_id: str) -> views.RunView:
        # Lists do not need it.
        from app.engine import dry_replay
        from app.services import stored_views

        self._dry_replays = self._dry_replays or dry_replay.DryReplays(STORED_VIEWS)
        try:
            return await stored_views.read(self._store, self._engine, self._drivers, run_id, self._dry_replays)
        except errors.JournalCorrupt as error:
            # A run that is queued or unloaded here would be found damaged only when its turn comes.
            await self._engine.reload(run_id)
            await self._store.rechecks.declare_failed(run_id, error)
            raise

    async def _slot(self, run_id: str, name: str, slot: slots.Slot) -> dict[str, plain.Json]:
        facts: dict[str, Any] = {"slot": name, "sha256": slot.sha256, "summary": slot.summary}
        if slot.type == "pointer":
            return slots.PointerSlot(**facts, type="pointer", receipt_id=slot.receipt_id).to_json()
        text = slot.text if slot.blob is None else await self._store.read_blob(run_id, slot.blob)
        return slots.ArtifactSlot(**facts, type="artifact", agent_id=slot.agent_id, text=text).to_json()


# The ETag is the hash of the whole response, so that the same response has the same tag after a restart. So every
# response is encoded, and this is the part worth caching.
class RunResponseCache:
    """Encodes the consolidated answer of one run; each encoding costs only the changes since the last one."""

    def __init__(self) -> None:
        self._steps: deque[bytes] = deque(maxlen=views.NEWEST_STEPS)
        self._counted = 0
        self._newest: records.Record | None = None
        self._slots: dict[str, tuple[slots.Slot, bytes]] = {}
        self._attempts: dict[str, list[records.Record]] = {}
        self._seen = 0

    def encoded(self, view: views.RunView, holder: str | None, budget: budgets.BudgetState | None = None) -> bytes:
        """Return the consolidated answer as JSON (execution-modes, appendix D), with the newest steps and their number.

        Args:
            holder: Run that has the workspace for which this one waits.
        """
        living = view.living()
        self._catch_up(view, living)
        open_steps = view.open[-views.NEWEST_STEPS :]
        open_bodies = [plain.encode(views.open_step(step, view.start.run_id, self._attempts)) for step in open_steps]
        times = {"started_at": view.started_at, "duration_ms": views.duration_ms(view.started_at, view.completed_at)}
        stalled = next((step.stalled for step in view.open if step.stalled is not None), None)
        return b'%b,"steps":[%b],"steps_total":%d,"cache_summary":{%b},"orders":%b,"holder":%b%b,"unreadable":%b%b}' % (
            plain.encode(views.manifest(view) | times)[:-1],
            b",".join([*self._steps, *open_bodies][-views.NEWEST_STEPS :]),
            len(living) + len(view.open),
            b",".join(self._summaries(view.board.slots)),
            plain.encode(allowed_orders.refusals(view)),
            plain.encode(holder),
            b"" if stalled is None else b',"stalled":' + plain.encode(stalled.to_json()),
            plain.encode(view.unreadable.to_json() if view.unreadable else None),
            b"" if budget is None else b',"budget":' + plain.encode(budget.to_json()),
        )

    def _catch_up(self, view: views.RunView, living: Sequence[records.Record]) -> None:
        # Records are only appended, unless a run was read again: then they are other objects.
        if self._counted and (len(living) < self._counted or living[self._counted - 1] is not self._newest):
            self._steps.clear()
            self._attempts.clear()
            self._counted = self._seen = 0
        for position in range(self._seen, len(view.records)):
            record = view.records[position]
            if not record.final or record.position in view.dead:
                self._attempts.setdefault(record.key, []).append(record)
        self._seen = len(view.records)
        fresh = living[max(self._counted, len(living) - views.NEWEST_STEPS) :]
        self._steps.extend(map(plain.encode, views.finished_steps(fresh, self._attempts)))
        self._counted = len(living)
        self._newest = living[-1] if living else None

    def _summaries(self, filled: Mapping[str, slots.Slot]) -> list[bytes]:
        fresh = {name: slot for name, slot in filled.items() if self._slots.get(name, (None, b""))[0] is not slot}
        summaries = shapes.all_json([views.SlotShown(type=slot.type, preview=slot.summary) for slot in fresh.values()])
        for name, summary in zip(fresh, summaries, strict=True):
            self._slots[name] = fresh[name], plain.encode({name: summary})[1:-1]
        return [self._slots[name][1] for name in filled]


def _signs(view: views.RunView | None) -> tuple[object, ...]:
    # Values that change between two changes of the run: a cached answer is valid only while they are the same.
    return () if view is None else tuple((step.output_at, step.queued) for step in view.open)


def check_run_id(run_id: str) -> None:
    """Refuse a text that cannot be a run's id before any path is made from it.

    Raises:
        errors.NotFound: `run_not_found`.
    """
    check_form(run_id)
    if clock.is_internal(run_id):
        raise errors.no_run(run_id, is_plan=True)


def check_form(run_id: str) -> None:
    """Refuse a text that cannot be a run's id; the id of a plan's run, which only maintenance shows, is accepted.

    Raises:
        errors.NotFound: `run_not_found`.
    """
    if not re.fullmatch(clock.RUN_ID_PATTERN, run_id):
        raise errors.no_run(run_id)


def _standing(view: views.RunView, standing: run_engine.Standing) -> views.RunView:
    return dataclasses.replace(
        view,
        status=standing.status,
        reason=standing.reason,
        open=standing.open,
        updated_at=standing.updated_at or view.updated_at,
    )


def _is_ours(view: views.RunView) -> bool:
    return view.start.owner == "service"


def _limit(cached: OrderedDict[Any, Any], most: int) -> None:
    while len(cached) > most:
        cached.popitem(last=False)
