"""Live reports: each worker stores one document about the steps that it performs, for the lists of all services.

Heartbeats have the same facts, but the server returns them for only one run at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from app import clock, errors
from app.engine import active_step, document_folders, open_steps, outages

FOLDER = "workers"  # Folder of the documents.
REPORT_SECONDS = 2.0  # Time between two reports of a worker, if its steps have changed.
READ_SECONDS = 2.0  # Shortest time between two readings by a service, however many lists it shows.

_REFRESH_SECONDS = 10.0
_STALE = timedelta(seconds=25)  # Age from which a report is that of a dead worker.
_ANSWER_SECONDS = 0.5
_MOST = 200
_FIELDS = ("run_id", "key", "step_id", "started_at")

_log = logging.getLogger(__name__)

Follow = Callable[[active_step.ActiveStep], None]
"""Receives a step before it is performed."""


class LiveReports:
    """Reports the steps of this process, and reads the reports of others."""

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time
        self._name = hashlib.sha256(f"{socket.gethostname()} {os.getpid()}".encode()).hexdigest()[:16]
        self._open: dict[active_step.ActiveStep, str] = {}
        self._reported_steps: list[dict[str, Any]] = []
        self._reported_at = float("-inf")
        self._known: Mapping[str, open_steps.PerformedStep] = {}
        self._read_at = float("-inf")
        self._unreported = outages.Outage(
            _log, "what this worker performs is not reported: %s", "what this worker performs is reported again"
        )
        self._unread = outages.Outage(
            _log, "what workers perform cannot be read in time: %s", "what workers perform is read again"
        )
        self.documents: document_folders.Documents | None = None
        """Folder of the reports; None: there are no reports."""

    @contextmanager
    def reported(self, run_id: str, *others: Follow) -> Iterator[Follow]:
        """Yield a function that receives the step of a run; the step is reported until the block ends."""
        followed: list[active_step.ActiveStep] = []

        def follow(step: active_step.ActiveStep) -> None:
            followed.append(step)
            self._open[step] = run_id
            for other in others:
                other(step)

        try:
            yield follow
        finally:
            # A step that is not reported any more has ended.
            for step in followed:
                del self._open[step]

    async def keep(self) -> None:
        """Report until cancelled; then remove the report."""
        if (documents := self.documents) is None:
            return
        try:
            await self._forget_the_gone(documents)
            while True:
                await self._report(documents)
                await self._clock.sleep(REPORT_SECONDS)
        finally:
            with contextlib.suppress(errors.StorageFault):
                await documents.remove(self._name)

    async def known(self) -> Mapping[str, open_steps.PerformedStep]:
        """Return the newest step of each run that a worker performs, as last reported."""
        now = self._clock.monotonic()
        # Views may be requested many times a second.
        if self.documents is None or now - self._read_at < READ_SECONDS:
            return self._known
        self._read_at = now
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                found = await self.documents.read_all()
        except (TimeoutError, errors.StorageFault) as error:
            self._unread.failed(error)
            return self._known
        self._unread.worked()
        # A report may be from another version.
        steps = [step for document in found.documents.values() for step in self._steps_of(document)]
        self._known = dict(sorted(steps, key=lambda step: step[1].started_at))
        return self._known

    async def _report(self, documents: document_folders.Documents) -> None:
        steps = list(_written(itertools.islice(self._open.items(), _MOST)))
        now = self._clock.monotonic()
        # An unchanged report is refreshed, since an old one counts as that of a dead worker.
        if steps == self._reported_steps and (not steps or now - self._reported_at < _REFRESH_SECONDS):
            return
        try:
            await documents.put(self._name, {"at": clock.stamp(self._clock.now()), "steps": steps})
        except errors.StorageFault as fault:
            self._unreported.failed(fault)
            return
        self._unreported.worked()
        self._reported_steps, self._reported_at = steps, now

    async def _forget_the_gone(self, documents: document_folders.Documents) -> None:
        with contextlib.suppress(errors.StorageFault):
            for name, document in (await documents.read_all()).documents.items():
                if not self._is_fresh(document):
                    await documents.remove(name)

    def _steps_of(self, document: Mapping[str, Any]) -> Iterator[tuple[str, open_steps.PerformedStep]]:
        listed = document.get("steps")
        for step in listed if isinstance(listed, list) and self._is_fresh(document) else ():
            if isinstance(step, dict) and all(isinstance(step.get(name), str) for name in _FIELDS):
                run_id, key, step_id, started_at = (step[name] for name in _FIELDS)
                at = step.get("output_at")
                yield (
                    run_id,
                    open_steps.PerformedStep(
                        key=key, step_id=step_id, started_at=started_at, output_at=at if isinstance(at, str) else None
                    ),
                )

    def _is_fresh(self, document: Mapping[str, Any]) -> bool:
        try:
            return self._clock.now() - clock.instant(str(document.get("at"))) < _STALE
        except ValueError:
            return False


def _written(steps: Iterable[tuple[active_step.ActiveStep, str]]) -> Iterator[dict[str, Any]]:
    for step, run_id in steps:
        view = open_steps.shown(step)
        # Before the first attempt of a step begins, there is nothing to show.
        if view.started_at:
            yield {
                "run_id": run_id,
                "key": view.key,
                "step_id": view.place.step_id,
                "started_at": view.started_at,
                "output_at": view.output_at,
            }
