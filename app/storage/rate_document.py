"""The document of rates: shares the prompts of each process of a store with all others."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from app import clock, errors
from app.domain import plain
from app.storage import layout, shared_turns
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk
from app.storage.disk.worker_threads import Workers

_FILE = f"{layout.RATES}/prompts.json"

T = TypeVar("T")

_log = logging.getLogger(__name__)


class RateDocument:
    """`configuration.RateStore` over the disk that the processes share."""

    def __init__(self, disk: Disk, workers: Workers, time: clock.Clock) -> None:
        self._disk = disk
        self._workers = workers
        self._clock = time
        self.process = os.urandom(8).hex()
        """Name of this process among those that share the store."""

    async def change(self, decide: Callable[[Any, float], tuple[plain.Json, T]]) -> T:
        """Replace the document while no other process changes it.

        Args:
            decide: Called with the document and the time in seconds since 1970; returns the new document, or None to
                keep the old one, and the result of this method.

        Raises:
            errors.Unavailable: the store cannot be read or written now.
        """

        def change() -> T:
            new, result = decide(self._read(), self._now())
            if new is not None:
                disk_port.replace(self._disk, _FILE, plain.encode(new), sync=False)
            return result

        return await self.alone(change)

    async def alone(self, job: Callable[[], T]) -> T:
        """Run a job on a thread while no other process runs one.

        Raises:
            errors.Unavailable: the store cannot be reached now.
        """

        def held() -> T:
            with self._held():
                return job()

        try:
            return await self._workers.run(held)
        except OSError as error:
            message = f"the rates of prompts that all processes share cannot be read or written now: {error.strerror}"
            raise errors.Unavailable(message, code="file_unreadable", detail={"file": _FILE}) from error

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _read(self) -> Any:
        try:
            return json.loads(self._disk.read(_FILE))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            _log.warning("%s in the data directory is not JSON, and is made anew", _FILE)
            return None

    @contextmanager
    def _held(self) -> Iterator[None]:
        lock = shared_turns.acquire(self._disk, layout.RATES)
        try:
            yield
        finally:
            lock.release()
