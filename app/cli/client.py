"""The client port: what commands ask, whether a folder in process or a service over HTTP answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Protocol

from app.domain import issues as engine_issues
from app.domain import receipts as engine_receipts
from app.engine import stores
from app.services import conferences, gate_inbox, requests
from app.services import gates as control_gates
from app.services import issues as control_issues

if TYPE_CHECKING:
    from app.cli import plan_client

Answer = dict[str, Any]
"""A JSON object, as the HTTP interface documents it."""


VERIFIED_AT_A_TIME = 100
"""Most things of a page of `verify_all`."""


class Client(Protocol):
    """Ask for runs and recipes. Every error is one of `app.errors`."""

    executes: bool
    """Whether runs execute in this process, so that leaving stops them; otherwise a service has them."""

    @property
    def plans(self) -> plan_client.Plans:
        """Return what session plans are asked through."""

    @property
    def stopping(self) -> bool:
        """Tell whether what executes in this process was told to stop."""

    async def start(self, request: requests.StartRequest) -> Answer:
        """Start a run; returns `{run_id, status}`."""

    async def plan(self, request: requests.StartRequest) -> Answer:
        """Check a request and tell what would run, without starting it: `{recipe_id, args, working_dir, graph, …}`."""

    def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Answer, None]:
        """Yield the run's events numbered above `after`, until it rests or has ended."""

    async def detail(self, run_id: str) -> Answer:
        """Return a run with its newest steps and its slots."""

    async def list_runs(self, query: stores.RunQuery) -> list[Answer]:
        """Return runs, newest first."""

    async def steps(self, run_id: str) -> list[Answer]:
        """Return the full step log."""

    async def slot(self, run_id: str, name: str) -> Answer:
        """Return a slot."""

    async def logs(self, run_id: str) -> list[str]:
        """Return the names of the run's logs."""

    async def log(self, run_id: str, name: str) -> str:
        """Return one log."""

    async def cancel(self, run_id: str) -> Answer:
        """End an unfinished run; returns `{run_id, status}` and perhaps `reason`, as the following three do."""

    async def pause(self, run_id: str, *, now: bool = False) -> Answer:
        """Stop a run at its next step boundary, or at once."""

    async def unpause(self, run_id: str) -> Answer:
        """Let a paused run go on."""

    async def resume(self, run_id: str, request: requests.ResumeRequest) -> Answer:
        """Send a failed, cancelled or interrupted run on."""

    async def gates(self, query: gate_inbox.GateQuery) -> list[Answer]:
        """Return the open gates."""

    async def gate(self, gate_id: str) -> Answer:
        """Return a gate, open or not."""

    async def answer(self, gate_id: str, reply: control_gates.Reply) -> Answer:
        """Answer a gate; returns it as decided. In process its run goes on."""

    async def confer(self, new: conferences.NewConference) -> Answer:
        """Start a conference; returns `{run_id, session_id, status}`."""

    async def issues(self, query: engine_issues.IssueQuery) -> list[Answer]:
        """Return issues, newest first."""

    async def issue(self, issue_id: str) -> Answer:
        """Return an issue."""

    async def open_issue(self, new: control_issues.NewIssue) -> Answer:
        """Write an issue down and return it."""

    async def edit_issue(self, issue_id: str, edit: control_issues.Edit) -> Answer:
        """Change an issue and return it."""

    async def receipts(self, query: engine_receipts.ReceiptQuery) -> list[Answer]:
        """Return receipts of tool executions, without their payloads."""

    async def receipt(self, receipt_id: str) -> Answer:
        """Return a receipt, and whether it is unchanged."""

    async def verify(self, run_id: str) -> Answer:
        """Check a run's start, journals and blobs; returns `{state, ok, files, advice, …}`."""

    def verify_all(self) -> AsyncGenerator[list[Answer], None]:
        """Check everything that is stored, and yield what was found, page by page."""

    async def repair(self, run_id: str, *, dry_run: bool = False) -> Answer:
        """Cut a damaged run back to its intact prefix, or tell how; returns `{run_id, changed, dry_run, status,
        files}`.
        """

    async def delete(self, run_id: str) -> None:
        """Delete a finished run."""

    async def recipes(self) -> list[Answer]:
        """Return all recipes, broken ones with their flaws."""

    async def recipe(self, recipe_id: str) -> Answer:
        """Return a recipe with the schema of its arguments and its graph."""

    async def validate(self, source: str, dialect: str, stem: str) -> Answer:
        """Check the text of a recipe; returns `{valid, flaws, …}`."""

    async def route(self, description: str) -> Answer:
        """Choose a recipe for a description."""

    async def agents(self) -> list[Answer]:
        """Return the agents."""
