"""Budgets: limits of several runs together and of single runs, and the runs that continue when a limit is raised."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from app import clock, errors
from app.domain import audit, authors, budgets, decisions, limits, plain, shapes, states
from app.domain.policies import Policies
from app.domain.prices import Prices
from app.engine import aio, outages, run_engine, stores
from app.services import faults, project_documents, run_reader

RETRY_SECONDS = 30.0  # Time until a run that could not be read or written is tried again.
LOOK_SECONDS = 5.0  # Longest time until a change of the file by another process or a person takes effect.

_PASSING = (errors.StorageFault, errors.WriteFailed, errors.Unavailable)
_SHARE = 20
"""Wait between two checks of all paused runs, in durations of a check, if no event announces changes."""

_Change: TypeAlias = tuple[dict[str, budgets.Budget], str, dict[str, plain.Json]]

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BudgetShown(budgets.Budget):
    """A budget and its state."""

    used: budgets.Used  # Amounts that calls of agents took; for a budget per day, since midnight.
    reserved: budgets.Amounts
    """Reserved amounts: for calls under way, and for those that ended without reporting usage."""
    left: budgets.Amounts  # Remainder of each limit; negative by the amount that exceeds it.
    turns_at: shapes.Instant | None  # When the spent amounts are reset; None: never.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunLimited(shapes.Shape):
    """The limits of a run after a change."""

    run_id: shapes.RunId  # Id of the run.
    status: states.RunState  # State of the run; one that was paused at a limit continues if it now fits.
    budget: budgets.BudgetState  # State of its limits.


class Budgets:
    """Keeps budgets and the limits of runs, and continues runs that wait for room in them."""

    def __init__(
        self,
        *,
        store: stores.RunStore,
        engine: run_engine.RunEngine,
        file: project_documents.File,
        clock: clock.Clock,
        prices: project_documents.DocumentOrders[Prices],
        policies: project_documents.DocumentOrders[Policies],
    ) -> None:
        self._store = store
        self._engine = engine
        self._file = file
        self._clock = clock
        self._known: dict[str, budgets.Budget] = {}
        self._unread = outages.Outage(_log, "the budgets read last still apply: %s", "the budgets are read again")
        self._next_look = math.inf
        self._outage = outages.Outage(_log, "runs with room are not continued: %s", "runs with room continue again")
        self._tasks = aio.BackgroundTasks(_failed)
        self.prices = prices
        """Prices of models."""
        self.policies = policies
        """Policies of recipes."""

    # -- start and stop

    async def load(self) -> None:
        """Apply the budgets of the file.

        Raises:
            errors.Conflict: `file_damaged`, the file contains something else.
            errors.Unavailable: it cannot be read now.
        """
        found = read(await asyncio.to_thread(self._file.read))
        if found != self._known:
            self._known = found
            self._put_in_force()

    def start(self, *, sends_on: bool = True) -> None:
        """Follow the file, and continue runs that have room: at once and after each change.

        A change is the begin of a day, a new file, or the end of calls of other processes.

        Args:
            sends_on: Whether this process continues runs.
        """
        self._tasks.begin(self._watch(sends_on), "budgets")

    async def stop(self) -> None:
        """Stop continuing runs."""
        self._tasks.give_up()
        await self._tasks.wait_idle()

    # -- budgets

    async def list(self) -> list[BudgetShown]:
        """Return all budgets by name, each with its state."""
        await self.load()
        return [await self._shown(budget) for _, budget in sorted(self._known.items())]

    async def put(self, budget: budgets.Budget, author: authors.Author | None = None) -> BudgetShown:
        """Create a budget, or replace the one with its name; runs that now have room continue.

        Raises:
            errors.RequestInvalid: names every flaw; or `too_many_budgets`.
            errors.WriteFailed: the file could not be written.
        """
        if found := budget.flaws() or budget.without_effect():
            raise errors.RequestInvalid(found[0].message, flaws=found)

        def put(known: dict[str, budgets.Budget]) -> _Change:
            if budget.name not in known and len(known) >= budgets.MOST_BUDGETS:
                message = f"there are {budgets.MOST_BUDGETS} budgets already, which is the limit; remove one"
                raise errors.RequestInvalid(message, code="too_many_budgets")
            action = "budget.changed" if budget.name in known else "budget.created"
            return {**known, budget.name: budget}, action, budget.to_json()

        await self._change(author, budget.name, put)
        # Runs that the budget had stopped continue after its change, not after the next check.
        await self.send_on()
        return await self._shown(budget)

    async def remove(self, name: str, author: authors.Author | None = None) -> None:
        """Remove a budget; runs that now have room continue.

        Raises:
            errors.NotFound: `budget_not_found`, names the existing budgets.
            errors.WriteFailed: the file could not be written.
        """

        def remove(known: dict[str, budgets.Budget]) -> _Change:
            if name not in known:
                message = f"there is no budget {name!r:.80}; there are {', '.join(sorted(known)) or 'none'}"
                raise errors.NotFound(message, code="budget_not_found", detail={"budgets": sorted(known)})
            return {other: budget for other, budget in known.items() if other != name}, "budget.removed", {}

        await self._change(author, name, remove)
        await self.send_on()

    # -- limits of a run

    async def limit(
        self, run_id: str, given: Mapping[str, float | None], author: authors.Author | None = None
    ) -> RunLimited:
        """Change limits of an unfinished run, or remove one by None; runs paused at them continue if they have room.

        Raises:
            errors.RequestInvalid: names every flaw.
            errors.NotFound, errors.WrongState: the run does not exist or has ended.
            errors.WriteFailed: the change could not be made durable.
        """
        run_reader.check_run_id(run_id)
        in_force = (await self._store.read(run_id)).limits.changed(given)
        if found := limits.flaws(in_force):
            raise errors.RequestInvalid(found[0].message, flaws=found)
        with faults.as_errors():
            await self._engine.limit(run_id, in_force, author)
        # A run may be about to pause at the former limit, and this check would miss it.
        self._next_look = 0.0
        await self.send_on()
        status = states.RunState((await self._store.summary(run_id)).status)
        return RunLimited(run_id=run_id, status=status, budget=await self._spending.counted(run_id, in_force))

    # -- continue

    async def send_on(self, waiting: Sequence[stores.RunSummary] | None = None) -> None:
        """Continue every run that is paused at a limit or budget and now has room.

        Args:
            waiting: Such runs, newest first; None: all that the service continues.
        """
        if waiting is None:
            parked = stores.RunQuery(status=states.RunState.PAUSED.value)
            waiting = [row async for row in stores.every_run(self._store, parked) if _waits_for_room(row)]
        # Oldest first, the order in which they would have run.
        for row in reversed(waiting):
            try:
                if await self._may_go_on(await self._store.read(row.run_id)):
                    await self._engine.unpause(row.run_id)
            except (errors.ControlRoomError, errors.StorageFault) as error:
                _log.warning("not sent on: %s", error.message, extra={"run_id": row.run_id, "code": error.code})
                if isinstance(error, _PASSING):
                    self._next_look = min(self._next_look, self._clock.monotonic() + RETRY_SECONDS)

    async def _may_go_on(self, loaded: stores.Loaded) -> bool:
        reason, error = loaded.decisions.paused, loaded.decisions.pause_error or {}
        if reason == decisions.TIME_LIMIT:
            return await self._has_time(loaded, error.get("detail"))
        return reason == decisions.BUDGET_EXHAUSTED and bool(await self._spending.has_room(loaded))

    async def _has_time(self, loaded: stores.Loaded, reached: Any) -> bool:
        """Return whether the time limit at which a run was paused, its own or an ancestor's, has changed."""
        if not isinstance(reached, dict):
            return False
        if (run_id := reached.get("run_id")) != loaded.start.run_id:
            loaded = await self._store.read(str(run_id))
        limit = getattr(loaded.limits, str(reached.get("limit")), None)
        return limit is None or bool(limit > reached.get("limit_seconds", 0))

    async def _watch(self, sends_on: bool) -> None:
        turned, is_owed = self._clock.now(), sends_on
        while True:
            is_owed = is_owed and not await self._has_sent_on()
            turns = (budget.next_turn(turned) for budget in self._known.values())
            due = min((at for at in turns if at is not None), default=None)
            known, now = self._known, self._clock.now()
            rest = LOOK_SECONDS if due is None else min(LOOK_SECONDS, max((due - now).total_seconds(), 0))
            await self._clock.sleep(rest)
            await self._reload()
            await asyncio.to_thread(self.policies.value_or_last)
            is_due = due is not None and self._clock.now() >= due
            turned = self._clock.now() if is_due or known is not self._known else turned
            news = is_due or known is not self._known or self._clock.monotonic() >= self._next_look
            is_owed = is_owed or bool(sends_on and news)

    async def _reload(self) -> None:
        try:
            # Another process may have written the file.
            await self.load()
            self._unread.worked()
        except errors.ControlRoomError as error:
            self._unread.failed(error.message)

    async def _has_sent_on(self) -> bool:
        began, self._next_look = self._clock.monotonic(), math.inf
        try:
            await self.send_on()
            if self._engine.elsewhere:
                # Other processes make the calls, and do not report here when these leave room.
                self._next_look = min(self._next_look, began + _SHARE * (self._clock.monotonic() - began))
            self._outage.worked()
        except (errors.ControlRoomError, errors.StorageFault) as error:
            self._outage.failed(error.message)
        return not self._outage.is_on

    # -- helpers

    @property
    def _spending(self) -> Any:
        return self._engine.spending

    def _put_in_force(self) -> None:
        self._spending.set_budgets(self._known.values())

    async def _shown(self, budget: budgets.Budget) -> BudgetShown:
        state, turns_at = await self._spending.standing(budget), budget.next_turn(self._clock.now())
        facts = {field.name: getattr(budget, field.name) for field in dataclasses.fields(budget)}
        return BudgetShown(
            **facts,
            used=state.used,
            reserved=state.reserved,
            left=state.left,
            turns_at=None if turns_at is None else clock.stamp(turns_at),
        )

    async def _change(
        self, author: authors.Author | None, name: str, change: Callable[[dict[str, budgets.Budget]], _Change]
    ) -> None:
        wanted: dict[str, budgets.Budget] = {}

        def check() -> audit.Change:
            # Another service may just have changed the file.
            self._file.renew()
            made, action, details = change(read(self._file.read()))
            wanted.update(made)
            document: plain.Json = {"budgets": [budget.to_json() for _, budget in sorted(made.items())]}
            return audit.Change(action=action, target=name, make=lambda: self._file.write(document), details=details)

        with faults.as_errors():
            await self._store.audit.change(author, check)
        self._known = wanted
        self._put_in_force()


def read(document: Any) -> dict[str, budgets.Budget]:
    """Return the budgets of a document by name.

    Raises:
        errors.Conflict: `file_damaged`.
    """
    if document is None:
        return {}
    try:
        found = [budgets.Budget.from_json(value) for value in document["budgets"]]
    except (KeyError, TypeError, ValueError) as error:
        message = f"budgets.json in the data directory is not valid: {error}; fix it, or move it away"
        raise errors.Conflict(message, code="file_damaged", detail={"file": "budgets.json"}) from error
    return {budget.name: budget for budget in found}


def _waits_for_room(row: stores.RunSummary) -> bool:
    return row.owner == "service" and row.reason in decisions.LIMIT_REASONS


def _failed(error: BaseException) -> None:
    _log.critical("runs are not sent on any more", exc_info=error)
