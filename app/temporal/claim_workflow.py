"""The workflow of a claim: one run holds a workspace alone, and others wait for it in order."""

from __future__ import annotations

import contextlib

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError

with workflow.unsafe.imports_passed_through():
    from app.temporal import messages


@workflow.defn(name=messages.CLAIM)
class ClaimWorkflow:
    """A claimed workspace; its memo names the holder."""

    @workflow.init
    def __init__(self, holder: str, waiting: list[str] | None = None) -> None:
        self._holder = holder
        self._waiting = list(waiting or [])
        self._is_free = False

    @workflow.run
    async def run(self, holder: str, waiting: list[str] | None = None) -> None:
        """Pass the workspace to one run after another, until no run waits for it."""
        while True:
            # Its history grows with each run that waits; a new workflow begins with the remaining runs.
            await workflow.wait_condition(lambda: self._is_free or workflow.info().is_continue_as_new_suggested())
            if not self._is_free:
                memo = {messages.HOLDER: self._holder}
                workflow.continue_as_new(args=[self._holder, self._waiting], memo=memo)
            if not self._waiting:
                return
            self._is_free, self._holder = False, self._waiting.pop(0)
            workflow.upsert_memo({messages.HOLDER: self._holder})
            next_one = workflow.get_external_workflow_handle(messages.workflow_id(self._holder))
            # A run without a workflow asks for its claim once it gets one.
            with contextlib.suppress(ApplicationError, FailureError):
                await next_one.signal(messages.NEW_LINES_SIGNAL)

    @workflow.signal(name=messages.WAIT_SIGNAL)
    def wait(self, run_id: str) -> None:
        """Add a run to those that wait for the workspace."""
        if run_id != self._holder and run_id not in self._waiting:
            self._waiting.append(run_id)

    @workflow.signal(name=messages.RELEASE_SIGNAL)
    def release(self, run_id: str) -> None:
        """Note that a run has ended, and needs the workspace no longer."""
        if run_id == self._holder:
            self._is_free = True
        elif run_id in self._waiting:
            self._waiting.remove(run_id)
