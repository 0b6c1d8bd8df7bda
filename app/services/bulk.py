"""Bulk orders: one order to many runs, chosen by their ids or by a filter whose count the client has seen."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from app import errors, printable
from app.domain import access, authors, states
from app.engine import run_engine, stores
from app.services import requests, run_reader
from app.services.runs import Runs

Action: TypeAlias = Literal["cancel", "pause", "unpause", "resume", "label", "delete"]
"""Actions that can be ordered for many runs."""

MOST_RUNS = 1000  # Most runs of one order.

_AT_ONCE = 16

_Order: TypeAlias = Callable[[str, authors.Author | None], Awaitable[states.RunState | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOrder:
    """An order to many runs."""

    action: Action  # The action.
    run_ids: tuple[str, ...] | None = None  # Runs; None: those of the filter.
    filter: stores.RunQuery | None = None  # Filter that chooses the runs if their ids are not given.
    expected: int | None = None  # How many runs the client expects; None: any number.
    dry_run: bool = False  # Whether runs are only counted.
    marks: run_engine.Marks = field(default_factory=run_engine.Marks)  # Labels and pin that `label` changes.
    scope: access.Scope | None = None  # Runs visible to the caller; None: all.


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOutcome:
    """Result of an order to many runs."""

    matched: int  # Number of runs that the order concerns.
    done: tuple[tuple[str, states.RunState | None], ...] = ()
    """Runs that accepted the order, each with its state afterwards; None if it was deleted."""
    refused: tuple[tuple[str, errors.ControlRoomError | errors.Fault], ...] = ()
    """Runs that refused the order, each with the reason."""


class BulkOrders:
    """Gives orders to many runs."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._orders: Mapping[Action, _Order] = {
            "cancel": self._cancel,
            "pause": self._pause,
            "unpause": self._unpause,
            "resume": self._resume,
            "delete": self._delete,
        }

    async def give(self, order: BulkOrder, author: authors.Author | None = None) -> BulkOutcome:
        """Give an order to each chosen run; if one run refuses it, the others still get it.

        Raises:
            errors.Conflict: `bulk_count_differs`, not the expected number of runs is chosen; `too_many_runs`.
                No run got the order.
        """
        run_ids = await self._meant(order)
        if order.expected is not None and order.expected != len(run_ids):
            message = (
                f"{printable.counted(len(run_ids), 'run')} found, not {order.expected} as expected; nothing was changed"
            )
            facts = {"matched": len(run_ids), "expected": order.expected}
            raise errors.Conflict(message, code="bulk_count_differs", detail=facts)
        if order.dry_run:
            return BulkOutcome(matched=len(run_ids))
        requests.check_labels(order.marks.labels)
        give = partial(self._label, order.marks) if order.action == "label" else self._orders[order.action]
        # A thousand orders must not open a thousand journals at the same time.
        turns = asyncio.Semaphore(_AT_ONCE)

        async def ordered(run_id: str) -> states.RunState | errors.ControlRoomError | errors.Fault | None:
            async with turns:
                try:
                    if order.scope is not None:
                        await self._refuse_outside(run_id, order.scope, order.marks.labels)
                    return await give(run_id, author)
                except (errors.ControlRoomError, errors.Fault) as error:
                    return error

        found = dict(zip(run_ids, await asyncio.gather(*map(ordered, run_ids)), strict=True))
        failed = (errors.ControlRoomError, errors.Fault)
        return BulkOutcome(
            matched=len(run_ids),
            done=tuple((run_id, came) for run_id, came in found.items() if not isinstance(came, failed)),
            refused=tuple((run_id, came) for run_id, came in found.items() if isinstance(came, failed)),
        )

    async def _refuse_outside(self, run_id: str, scope: access.Scope, labels: Mapping[str, str | None]) -> None:
        if not await self._runs.is_within(run_id, scope):
            raise errors.no_run(run_id)
        if labels and not await self._runs.is_within(run_id, scope, labels):
            raise errors.Denied("with these labels the run would be outside of your key's limits", code="out_of_scope")

    async def _meant(self, order: BulkOrder) -> list[str]:
        if order.run_ids is not None:
            return list(dict.fromkeys(order.run_ids))
        wanted = dataclasses.replace(
            order.filter or stores.RunQuery(),
            # One more than allowed shows that there are too many.
            limit=MOST_RUNS + 1,
            cursor=None,
            scope=order.scope,
        )
        found = [run.run_id for run in await self._runs.list_runs(wanted)]
        if len(found) > MOST_RUNS:
            message = f"more than {MOST_RUNS} runs match; narrow the filter, and repeat the order for the rest"
            raise errors.Conflict(message, code="too_many_runs", detail={"most": MOST_RUNS})
        return found

    async def _cancel(self, run_id: str, author: authors.Author | None) -> states.RunState:
        return (await self._runs.cancel(run_id, author)).status

    async def _pause(self, run_id: str, author: authors.Author | None) -> states.RunState:
        return (await self._runs.pause(run_id, author)).status

    async def _unpause(self, run_id: str, author: authors.Author | None) -> states.RunState:
        return (await self._runs.unpause(run_id, author)).status

    async def _resume(self, run_id: str, author: authors.Author | None) -> states.RunState:
        run_reader.check_run_id(run_id)
        return (await self._runs.resume(run_id, requests.ResumeRequest(), author)).status

    async def _label(self, marks: run_engine.Marks, run_id: str, author: authors.Author | None) -> states.RunState:
        await self._runs.mark(run_id, marks, author)
        return await self._runs.reader.status(run_id)

    async def _delete(self, run_id: str, author: authors.Author | None) -> None:
        await self._runs.delete(run_id, author)
