"""The service start: repeats the start of a service while something that it needs cannot be read or reached."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from app import clock, errors, garbage
from app.bootstrap.container import Application
from app.storage.disk import disk_health

FIRST_WAIT_SECONDS = 0.5  # Wait before the first retry.
LONGEST_WAIT_SECONDS = 30.0  # Longest wait; each wait is twice as long as the previous one.

_log = logging.getLogger(__name__)


class ServiceStart:
    """Builds an application and keeps it open, both in one task.

    Entering waits for the first attempt. If that fails for a temporary reason, the attempts continue in the background,
    and `refusal` returns why requests must wait; any other failure is raised.

    Args:
        opened: Called once, as soon as the application is built.
    """

    def __init__(
        self,
        build: Callable[[], AbstractAsyncContextManager[Application]],
        opened: Callable[[Application], None],
        time: clock.Clock,
    ) -> None:
        self._build = build
        self._opened = opened
        self._clock = time
        self._fault: errors.ControlRoomError | errors.Unreadable | None = None
        self._wait_seconds = FIRST_WAIT_SECONDS
        self._attempted = asyncio.Event()
        self._built: asyncio.Future[Application] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ServiceStart:
        self._task = asyncio.create_task(self._hold(), name="hold the application")
        attempted = asyncio.create_task(self._attempted.wait())
        # The start creates thousands of objects, and none of them is garbage.
        with garbage.postponed():
            await asyncio.wait((self._task, attempted), return_when=asyncio.FIRST_COMPLETED)
        attempted.cancel()
        if self._task.done():
            await self._task
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._over.set()
        # A postponed start has nothing to close.
        if self.application is None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        else:
            await self._task

    @property
    def application(self) -> Application | None:
        """Return the application; None while the start is postponed."""
        return self._built.result() if self._built.done() and not self._built.cancelled() else None

    async def until_built(self) -> Application:
        """Wait for the application.

        Raises:
            errors.ConfigurationError: a later attempt failed for a reason that is not temporary.
        """
        assert self._task is not None
        await asyncio.wait((self._task, self._built), return_when=asyncio.FIRST_COMPLETED)
        if not self._built.done():
            await self._task
        return self._built.result()

    def refusal(self) -> errors.Unavailable | errors.Unreadable:
        """Return why requests cannot be answered yet."""
        if isinstance(self._fault, errors.Unreadable):
            detail = {**self._fault.detail, "retry_after_seconds": max(1, round(self._wait_seconds))}
            return errors.Unreadable(self._fault.message, detail=detail)
        reason = f": {self._fault.message}; it is tried again" if self._fault is not None else ""
        return errors.Unavailable(f"the service is starting{reason}", code="starting")

    async def _hold(self) -> None:
        while True:
            try:
                async with self._build() as application:
                    # Waiting requests continue from here.
                    self._opened(application)
                    self._built.set_result(application)
                    self._attempted.set()
                    await self._over.wait()
                    return
            except (errors.ConfigurationError, errors.Unreadable) as failure:
                # Once the application is built, a failure is one of the running service.
                if self._built.done() or not _passes(failure):
                    raise
                self._put_off(failure)
            except OSError as error:
                if self._built.done():
                    raise
                failed = _of_system(error)
                if not _passes(failed):
                    raise failed from error
                self._put_off(failed)
            await self._clock.sleep(self._wait_seconds)
            # A disk may be away for hours; the log need not repeat that every second.
            self._wait_seconds = min(2 * self._wait_seconds, LONGEST_WAIT_SECONDS)

    def _put_off(self, failure: errors.ConfigurationError | errors.Unreadable) -> None:
        facts = {"code": failure.code, "file": failure.detail.get("path")}
        _log.warning("the start is put off for %g s: %s", self._wait_seconds, failure.message, extra=facts)
        known = self._fault.detail if self._fault is not None else {}
        if "since" in failure.detail and known.get("path") == failure.detail["path"]:
            failure.detail["since"] = known["since"]
        self._fault = failure
        self._attempted.set()


def _of_system(error: OSError) -> errors.ConfigurationError:
    path = str(error.filename or "a file of the project")
    message = f"{path} cannot be used: {disk_health.reason_of(error)}"
    return errors.ConfigurationError(message, code="data_directory_unusable", detail=disk_health.facts(path, error))


def _passes(failure: errors.ConfigurationError | errors.Unreadable) -> bool:
    if isinstance(failure, errors.Unreadable):
        return True
    return (
        failure.code in ("index_away", "store_away", "store_busy", "blobs_away")
        or failure.detail.get("errno") in disk_health.PASSING
    )
