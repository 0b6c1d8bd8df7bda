"""Workflows for Temporal, in a module of their own, because its sandbox imports the module again for each run."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

_AT_MOST = timedelta(seconds=60)


@workflow.defn
class Steps:
    """No-op activities, one after the other."""

    @workflow.run
    async def run(self, count: int) -> None:
        """Execute a number of no-op activities."""
        for _ in range(count):
            await workflow.execute_activity("nothing", start_to_close_timeout=_AT_MOST)


@workflow.defn
class Gate:
    """A workflow that waits for a person."""

    def __init__(self) -> None:
        self._answered = False

    @workflow.run
    async def run(self) -> None:
        """Wait for the answer."""
        await workflow.execute_activity("arrive", start_to_close_timeout=_AT_MOST)
        await workflow.wait_condition(lambda: self._answered)

    @workflow.signal
    def answer(self) -> None:
        """Take the answer."""
        self._answered = True
