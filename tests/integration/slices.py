"""Work between two turns of the event loop, measured in calls, which do not depend on the load of the machine."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
import time
import traceback
from asyncio import events
from collections.abc import Iterator
from typing import Any

import httpx

from tests.integration import served
from tests.integration.project import Project

MOST_CALLS = 200_000
"""Calls that one turn may make; on a machine of 2020 these take about 50 ms."""

MOST_CPU_SECONDS = 3.0
"""Processor time of one turn, for long work inside of one call; generous, since a counted call is slow."""

_TURN = events.Handle._run.__code__


class Slices:
    """Counts the calls of each turn of one thread's event loop."""

    def __init__(self) -> None:
        self.longest = 0
        """Highest number of calls of one turn."""
        self.longest_cpu_seconds = 0.0
        """Highest processor time of one turn."""
        self.place = ""
        """Place of the longest turn after half of the calls that it may make."""
        self._count = 0
        self._began = 0.0
        self._stack = ""

    def install(self) -> None:
        """Count in the present thread from now on."""
        self._began = time.thread_time()
        sys.setprofile(self._note)

    def forget(self) -> None:
        """Reset the counts."""
        self.longest, self.longest_cpu_seconds, self.place = 0, 0.0, ""

    def _note(self, frame: Any, event: str, _: Any) -> None:
        if event == "call":
            if frame.f_code is _TURN:
                self._settle()
            self._count += 1
        elif event == "c_call":
            self._count += 1
        if self._count == MOST_CALLS // 2:
            self._stack = "".join(traceback.format_list(traceback.extract_stack(frame)[-12:]))

    def _settle(self) -> None:
        now = time.thread_time()
        if self._count > self.longest:
            self.longest, self.place = self._count, self._stack
        self.longest_cpu_seconds = max(self.longest_cpu_seconds, now - self._began)
        self._count, self._began, self._stack = 0, now, ""


class Watched:
    """A service whose event loop is watched, and a client beside it."""

    def __init__(self, http: httpx.Client, slices: Slices) -> None:
        self.http = http
        self.slices = slices

    def run(self, recipe_id: str, **args: Any) -> dict[str, Any]:
        """Execute a run to its end."""
        answer = self.http.post("/api/runs", json={"recipe_id": recipe_id, "args": args})
        assert answer.status_code == 201, answer.text[:500]
        return self.until_over(answer.json()["run_id"])

    def until_over(self, run_id: str) -> dict[str, Any]:
        """Wait for the end of a run."""
        etag, due = "", time.monotonic() + 600
        while time.monotonic() < due:
            wait = 5 if etag else 0
            answer = self.http.get(f"/api/runs/{run_id}?wait={wait}", headers={"If-None-Match": etag})
            if answer.status_code == 200:
                etag, shown = answer.headers["etag"], answer.json()
                if shown["status"] in ("done", "failed", "cancelled"):
                    return dict(shown)
        raise TimeoutError(run_id)

    def check(self, what: str) -> None:
        """Assert that no turn was too long, and reset the counts."""
        slices = self.slices
        found = f"{what}: {slices.longest} calls, {slices.longest_cpu_seconds:.2f} s of processor time in one turn"
        assert slices.longest <= MOST_CALLS, f"{found}\n{slices.place}"
        assert slices.longest_cpu_seconds <= MOST_CPU_SECONDS, found
        slices.forget()


@contextlib.contextmanager
def watching(project: Project, **overrides: Any) -> Iterator[Watched]:
    """Serve a project from another thread, and count the turns of its loop once it is ready."""
    address: concurrent.futures.Future[str] = concurrent.futures.Future()
    stop, slices = threading.Event(), Slices()

    async def serve() -> None:
        try:
            async with served.on_a_port(project, **overrides) as service:
                slices.install()
                address.set_result(str(service.http.base_url))
                await asyncio.to_thread(stop.wait)
                sys.setprofile(None)
        except BaseException as error:
            if not address.done():
                address.set_exception(error)
            raise

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        with httpx.Client(base_url=address.result(served.WAIT_SECONDS), timeout=300, verify=False) as http:
            yield Watched(http, slices)
    finally:
        stop.set()
        thread.join()
