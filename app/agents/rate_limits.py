"""Rate limits: bound the prompts to each backend and model, for all runs and all processes of a store."""

# A 429 that one run gets pauses every run's prompts to that backend and model until its `Retry-After` is over.
# The packages of services repeat a refused request by themselves; a hook sees each response. A file keeps these pauses
# beyond the end of the process; without it a restart would send every waiting prompt at once. The file is read again
# when it has changed: another process of the store got a 429, or a person lifted a pause.

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any

from app import clock, errors
from app.agents.configuration import BackendConfig, PauseFile, RateStore
from app.agents.shared_rates import Model, SharedRates
from app.domain import plain
from app.engine import live_steps

_MINUTE_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 3600.0
_LOOK_SECONDS = 5.0  # Longest time until a change of the file affects prompts that wait.

_asking: ContextVar[live_steps.LiveStep | None] = ContextVar("_asking", default=None)

_log = logging.getLogger(__name__)


class RateLimit(live_steps.BackendQueue):
    """The queue of prompts to one backend and model, in the order of arrival.

    Args:
        reload: Reads the pauses of other services again if their file has changed; called after each pause of a wait.
        shared: Counts the prompts of all processes; None: only those of this process.
    """

    def __init__(
        self,
        config: BackendConfig,
        model: str | None,
        time: clock.Clock,
        reload: Callable[[], None] = lambda: None,
        shared: SharedRates | None = None,
    ) -> None:
        super().__init__(config.name)
        self._reload = reload
        self._clock = time
        self._config = config
        self._model = config.name, model
        self._shared = shared if config.max_per_minute is not None or config.max_parallel is not None else None
        self._per_minute = config.max_per_minute
        self._most = config.max_parallel
        self._begun: deque[float] = deque()
        self._running = 0
        self._freed = asyncio.Event()
        self._paused_until: datetime | None = None

    @property
    def until(self) -> datetime | None:
        """Return the end of the service's pause; None if no pause is in force."""
        return self._paused_until if self._pause_seconds() else None

    @property
    def limit(self) -> str | None:
        """Return the setting that lets no prompt begin now; both if the prompts of other processes reach a limit."""
        if self.until is not None:
            return None
        reached = {
            "max_per_minute": self._per_minute is not None and len(self._begun) >= self._per_minute,
            "max_parallel": self._most is not None and self._running >= self._most,
        }
        named = [name for name, is_reached in reached.items() if is_reached] or list(reached)
        found = [f"{name}: {most}" for name in named if (most := getattr(self._config, name)) is not None]
        return ", ".join(found) or None

    def pause(self, seconds: float) -> None:
        """Start no prompt for some seconds, as the service asks; a longer pause remains in force."""
        until = self._clock.now() + timedelta(seconds=min(max(seconds, 0.0), _LONGEST_PAUSE_SECONDS))
        self._paused_until = max(until, self._paused_until or until)

    def keep(self, until: datetime | None) -> None:
        """Replace the present pause by a stored one, or by none."""
        self._paused_until = None
        if until is not None:
            self.pause((until - self._clock.now()).total_seconds())

    def turn(self, step: live_steps.LiveStep) -> AbstractAsyncContextManager[None]:
        """Wait until the step's prompt may begin."""
        return _Turn(self, step)

    async def begin(self, step: live_steps.LiveStep) -> None:
        """Wait until a step's prompt may begin, and count it."""
        # Queue behind the waiting prompts even if there is room at this moment: this keeps the order of arrival.
        if self._shared is not None or self._waiting or self._wait_seconds() != 0:
            async with self.waiting(step):
                await self._admitted()
        self._running += 1
        if self._per_minute is not None:
            # Counted at its begin: the minute slides with the prompts, not with the clock.
            self._begun.append(self._clock.monotonic())

    def end(self) -> None:
        """Note that a prompt is over."""
        self._running -= 1
        self._freed.set()
        if self._shared is not None:
            self._shared.end(self._model)

    async def _admitted(self) -> None:
        while (seconds := await self._asked()) != 0:
            self._freed.clear()
            if seconds is None:
                await self._freed.wait()
            else:
                await self._clock.sleep(min(seconds, _LOOK_SECONDS))
                self._reload()

    async def _asked(self) -> float | None:
        seconds = self._wait_seconds()
        return await self._shared.begin(self._model, self._config) if seconds == 0 and self._shared else seconds

    def _wait_seconds(self) -> float | None:
        """Return the shortest time to wait; None: until another prompt ends."""
        now, waits = self._clock.monotonic(), [self._pause_seconds()]
        if self._per_minute is not None:
            while self._begun and self._begun[0] <= now - _MINUTE_SECONDS:
                self._begun.popleft()
            if len(self._begun) >= self._per_minute:
                waits.append(self._begun[0] + _MINUTE_SECONDS - now)
        if not any(waits) and self._most is not None and self._running >= self._most:
            # The end of another prompt cannot be predicted; it wakes those that wait.
            return None
        return max(waits)

    def _pause_seconds(self) -> float:
        if self._paused_until is None:
            return 0.0
        return max(0.0, (self._paused_until - self._clock.now()).total_seconds())


class _Turn:
    # A generator would be ten times as large, and each prompt under way holds one of these.
    __slots__ = ("_limit", "_step")

    def __init__(self, limit: RateLimit, step: live_steps.LiveStep) -> None:
        self._limit = limit
        self._step = step

    async def __aenter__(self) -> None:
        await self._limit.begin(self._step)
        _asking.set(self._step)

    async def __aexit__(self, *_: object) -> None:
        _asking.set(None)
        self._step.refused_until = None
        self._limit.end()


class RateLimits:
    """The limits of all backends and models.

    Args:
        file: Stores the pauses that services ask for; None: they end with the process.
        store: Counts the prompts of all processes that share it; None: there are no others.
    """

    def __init__(
        self,
        configs: Mapping[str, BackendConfig],
        time: clock.Clock,
        file: PauseFile | None = None,
        store: RateStore | None = None,
    ) -> None:
        self._configs = configs
        self._clock = time
        self._file = file
        self._store = store
        self._shared = None if store is None else SharedRates(store, time)
        self._limits: dict[Model, RateLimit] = {}
        self._seen: tuple[int, ...] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._unsaved = set[Model]()

    def reload(self) -> None:
        """Apply the pauses of the file if it has changed; if the file is invalid, the earlier pauses remain."""
        if self._file is None or self._is_saving:
            return
        if self._unsaved:
            self._save_soon()
            return
        try:
            seen = self._file.signature()
            if seen == self._seen:
                return
            # A fault is reported once for each state of the file.
            self._seen = seen
            found = _pauses(self._file.read())
        except (errors.Conflict, errors.Unavailable) as error:
            if isinstance(error, errors.Unavailable):
                self._seen = None
            _log.error("the pauses of backends that were read last still count: %s", error.message)
            return
        # Also those that the file no longer names: a person has lifted their pauses.
        for backend, model in {*self._limits, *found}:
            self.of(backend, model).keep(found.get((backend, model)))

    def pause(self, backend: str, model: str | None, seconds: float) -> None:
        """Start no prompt to a model for some seconds, and store that pause."""
        # Read the file first: this process must not overwrite its present content.
        self.reload()
        limit = self.of(backend, model)
        limit.pause(seconds)
        # The packages of services wait by themselves, in the task of the step.
        if (step := _asking.get()) is not None:
            step.refused_until = limit.until
        self._unsaved.add((backend, model))
        self._save_soon()

    async def close(self) -> None:
        """Wait until the pauses are stored, and the prompts of this process are no longer counted."""
        if self._saving is not None:
            await asyncio.wait([self._saving])
        if self._shared is not None:
            await self._shared.close()

    @property
    def _is_saving(self) -> bool:
        return self._saving is not None and not self._saving.done()

    def _save_soon(self) -> None:
        if self._file is not None and not self._is_saving:
            self._saving = asyncio.create_task(self._save(self._file), name="rate limits")

    async def _save(self, file: PauseFile) -> None:
        while self._unsaved:
            # Taken before the write: the next round saves a pause that arrives during the write.
            new, self._unsaved = self._unsaved, set()
            known = {key: limit.until for key, limit in self._limits.items()}
            job = functools.partial(_merge, file, known, new, self._clock.now())
            try:
                await (asyncio.to_thread(job) if self._store is None else self._store.alone(job))
            except (errors.WriteFailed, errors.Unavailable) as error:
                # The next prompt tries to save them again.
                self._unsaved |= new
                _log.warning("a pause of a backend counts in this process alone so far: %s", error.message)
                return

    def of(self, backend: str, model: str | None) -> RateLimit:
        """Return the limit of a backend and model; each model of a backend has its own."""
        known = self._limits.get((backend, model))
        if known is None:
            config = self._configs.get(backend) or BackendConfig(name=backend, type="")
            known = self._limits[backend, model] = RateLimit(config, model, self._clock, self.reload, self._shared)
        return known


def _merge(file: PauseFile, known: Mapping[Model, datetime | None], new: set[Model], now: datetime) -> None:
    """Add the new ones of the known pauses to those of the file; write the file anew if it is damaged."""
    try:
        file.renew()
        merged = dict[Model, datetime | None](_pauses(file.read()))
    except errors.Conflict:
        # If the file is damaged, what this process knows is more reliable.
        merged = dict(known)
    for model in new:
        # Take the longer of two pauses: the shorter is an earlier 429 of another process.
        merged[model] = max(filter(None, (known.get(model), merged.get(model))), default=None)
    pauses: list[plain.Json] = [
        {"backend": backend, "model": model, "until": clock.stamp(at)}
        for (backend, model), at in merged.items()
        if at is not None and at > now
    ]
    file.write({"pauses": pauses})


def _pauses(document: Any) -> dict[Model, datetime]:
    if document is None:
        return {}
    listed = document.get("pauses") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise _damaged("$.pauses", "must be a list")
    found = dict[Model, datetime]()
    for number, each in enumerate(listed):
        place = f"$.pauses[{number}]"
        if not isinstance(each, dict):
            raise _damaged(place, "must be an object")
        backend, model, until = (each.get(name) for name in ("backend", "model", "until"))
        if not isinstance(backend, str):
            raise _damaged(f"{place}.backend", "must be the name of a backend")
        if not isinstance(model, str | None):
            raise _damaged(f"{place}.model", "must be the name of a model, or null")
        try:
            found[backend, model] = clock.instant(str(until))
        except ValueError:
            raise _damaged(f"{place}.until", "must be an instant such as 2026-02-10T14:30:00Z") from None
    return found


def _damaged(place: str, message: str) -> errors.Conflict:
    text = f"rate_limits.json in the data directory: {place} {message}; fix it, or remove the file"
    return errors.Conflict(text, code="file_damaged", detail={"file": "rate_limits.json", "path": place})
