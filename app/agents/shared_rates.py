"""Shared rates: bound the prompts of all processes of a store together, for each backend and model."""

# Each process writes how many prompts it has under way as an absolute number, not as a change by one, so that the next
# write corrects one that failed. The prompts of a killed or frozen process count until its term is over.

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeAlias

from app import clock, errors
from app.agents.configuration import BackendConfig, RateStore
from app.domain import plain
from app.engine import aio, outages

TERM_SECONDS = 15.0  # Time for which the prompts of a process count after its last report.
LOOK_SECONDS = 0.5  # Time between two checks whether another process has freed a place.

_RENEW_SECONDS = 5.0
_MINUTE_SECONDS = 60
_CLOSE_SECONDS = 2.0

Model: TypeAlias = tuple[str, str | None]
"""A backend and a model."""

_log = logging.getLogger(__name__)


class SharedRates:
    """Count the prompts of this process together with those of all others."""

    def __init__(self, store: RateStore, time: clock.Clock) -> None:
        self._store = store
        self._clock = time
        self._under_way: Counter[Model] = Counter()
        self._turn = asyncio.Lock()
        self._ended = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        self._outage = outages.Outage(
            _log, "prompts to backends with a limit wait: %s", "prompts to backends with a limit begin again"
        )

    async def begin(self, model: Model, config: BackendConfig) -> float:
        """Count a prompt and return 0 if there is room for it; otherwise return how long to wait before the next look.

        While the store is unavailable no prompt begins, and prompts under way continue.
        """
        # A cancellation can arrive before the count is stored; the count is undone then.
        asking = asyncio.ensure_future(self._begin(model, config))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(lambda asked: self._undo(model, asked))
            raise
        except errors.Unavailable as error:
            self._outage.failed(error.message)
            return LOOK_SECONDS

    def end(self, model: Model) -> None:
        """Note that a prompt has ended; the other processes see it a moment later."""
        if self._under_way[model]:
            self._under_way[model] -= 1
            self._ended.set()

    async def close(self) -> None:
        """Report to the other processes that this one has no prompt under way."""
        if (renewing := self._renewing) is not None:
            self._under_way.clear()
            self._ended.set()
            await asyncio.wait([renewing], timeout=_CLOSE_SECONDS)
            await aio.end(renewing)

    async def _begin(self, model: Model, config: BackendConfig) -> float:
        async with self._turn:
            mine = self._under_way[model] + 1

            def decide(document: Any, now: float) -> tuple[plain.Json, float]:
                rates = Rates(document, now)
                seconds = rates.begin(model, config, self._store.process, mine)
                return (None if seconds else rates.to_json()), seconds

            seconds = await self._store.change(decide)
            self._outage.worked()
            if not seconds and config.max_parallel is not None:
                self._under_way[model] = mine
                if self._renewing is None or self._renewing.done():
                    self._renewing = asyncio.create_task(self._renew(), name="shared rates")
            return seconds

    def _undo(self, model: Model, asked: asyncio.Future[float]) -> None:
        if aio.failure(asked) is None and not asked.cancelled() and not asked.result():
            self.end(model)

    async def _renew(self) -> None:
        while True:
            if not self._ended.is_set():
                await aio.wait_first(self._ended.wait(), self._clock.sleep(_RENEW_SECONDS))
            self._ended.clear()
            async with self._turn:
                # Without zeros, which would keep the process in the document for ever.
                mine = +self._under_way
                try:
                    await self._store.change(functools.partial(self._renewed, mine))
                    self._outage.worked()
                except errors.Unavailable as error:
                    self._outage.failed(error.message)
                if not mine and not self._ended.is_set():
                    # Checked while no prompt can begin, because a new one would rely on this task.
                    self._renewing = None
                    return

    def _renewed(self, mine: Mapping[Model, int], document: Any, now: float) -> tuple[plain.Json, None]:
        rates = Rates(document, now)
        rates.renew(self._store.process, mine)
        return rates.to_json(), None


class Rates:
    """The prompts of all processes at one moment, without expired or unreadable entries."""

    def __init__(self, document: Any, now: float) -> None:
        self._now = now
        self._begun: dict[Model, Counter[int]] = {}
        self._running: dict[Model, dict[str, tuple[int, float]]] = {}
        for each in _entries(document):
            model = each["backend"], each["model"]
            self._begun[model] = Counter(dict(filter(self._counts, each["begun"])))
            self._running[model] = {name: (n, until) for name, n, until in each["running"] if self._lasts(until)}

    def begin(self, model: Model, config: BackendConfig, process: str, mine: int) -> float:
        """Count a prompt of a process, which then has `mine` under way, and return 0; or return how long to wait."""
        begun, running = self._begun.setdefault(model, Counter()), self._running.setdefault(model, {})
        waits = [0.0]
        if config.max_per_minute is not None and begun.total() >= config.max_per_minute:
            # A second of the document is over one second after its begin.
            waits.append(min(begun) + 1 + _MINUTE_SECONDS - self._now)
        # The earlier count of this process is replaced, not added to.
        others = sum(count for name, (count, _) in running.items() if name != process)
        if config.max_parallel is not None and others + mine > config.max_parallel:
            waits.append(LOOK_SECONDS)
        if not any(waits) and config.max_per_minute is not None:
            begun[math.floor(self._now)] += 1
        if not any(waits) and config.max_parallel is not None:
            running[process] = mine, self._now + TERM_SECONDS
        return max(waits)

    def renew(self, process: str, mine: Mapping[Model, int]) -> None:
        """Replace a process's count of prompts under way, for another term."""
        for model in {*self._running, *mine}:
            running = self._running.setdefault(model, {})
            running.pop(process, None)
            if model in mine:
                running[process] = mine[model], self._now + TERM_SECONDS

    def to_json(self) -> plain.Json:
        """Return the document."""
        return {
            "prompts": [
                {
                    "backend": model[0],
                    "model": model[1],
                    "begun": [[second, count] for second, count in sorted(self._begun.get(model, {}).items())],
                    "running": [[name, *each] for name, each in sorted(self._running.get(model, {}).items())],
                }
                for model in dict.fromkeys((*self._begun, *self._running))
                if self._begun.get(model) or self._running.get(model)
            ]
        }

    # A clock that was set back, or one of another server, must not delay prompts for long.

    def _counts(self, bucket: Any) -> bool:
        # Prompts are counted per second, so that thousands of them fit: each second counts until it is over.
        return bool(self._now - _MINUTE_SECONDS - 1 < bucket[0] <= self._now + _MINUTE_SECONDS)

    def _lasts(self, until: float) -> bool:
        return self._now < until <= self._now + 2 * TERM_SECONDS


def _entries(document: Any) -> list[Any]:
    try:
        return [_checked(each) for each in (document or {"prompts": []})["prompts"]]
    except (TypeError, KeyError, ValueError, OverflowError):
        _log.warning("the prompts of other processes are not known, and are counted anew")
        return []


def _checked(entry: Any) -> dict[str, Any]:
    return {
        "backend": str(entry["backend"]),
        "model": None if entry["model"] is None else str(entry["model"]),
        "begun": [(int(second), int(count)) for second, count in entry["begun"]],
        "running": [(str(name), int(count), float(until)) for name, count, until in entry["running"]],
    }
