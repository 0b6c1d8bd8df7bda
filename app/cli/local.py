"""The client of a project's folder: the use cases, in process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from app import settings
from app.cli import client, folders, local_plans
from app.cli.access import Access
from app.dialects import agent_recipes
from app.domain import issues as engine_issues
from app.domain import plain, receipts, states
from app.engine import stores
from app.services import conferences, gate_inbox, requests
from app.services import gates as control_gates
from app.services import issues as control_issues

_UNFINISHED = (states.RunState.PENDING, states.RunState.RUNNING, states.RunState.WAITING)


@contextlib.asynccontextmanager
async def connect(chosen: settings.Settings, access: Access) -> AsyncIterator[FolderClient]:
    """Open the project's folder for a command.

    Raises:
        errors.ConfigurationError: the settings cannot work, or a service holds the folder and the command changes runs.
    """
    async with folders.opened(chosen, access) as folder:
        yield FolderClient(folder)


class FolderClient:
    """Ask the use cases directly; runs that it starts execute in this process."""

    executes = True

    def __init__(self, folder: folders.Opened) -> None:
        self._application = folder.application
        self._held = folder.held
        self._signals = folder.signals
        self.plans = local_plans.FolderPlans(folder.application, self._stopped)

    @property
    def stopping(self) -> bool:
        """Tell whether a stop was asked for."""
        return self._signals is not None and self._signals.asked > 0

    async def start(self, request: requests.StartRequest) -> client.Answer:
        """Start a run that belongs to this process; if it is to have its workspace alone, only where it gets that."""
        wanted = self._application.starter.prepare(request)
        if wanted.exclusive_workspace and not await self._is_repeated(request):
            await self._held.take(wanted.working_dir, parent_run_id=request.parent_run_id)
        started = await self._application.runs.start(dataclasses.replace(request, owner="process"))
        return _moved(started.run_id, started.status)

    async def plan(self, request: requests.StartRequest) -> client.Answer:
        """Prepare a run and leave it at that."""
        start = self._application.starter.prepare(request)
        shown = start.to_json()
        names = ("recipe_id", "dialect", "description", "args", "working_dir", "labels", "priority", "recipe_sha256")
        graph = self._application.catalogue.describe(start.recipe_id)["graph"]
        return {name: shown[name] for name in names} | {"graph": graph}

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[client.Answer, None]:
        """Yield the events as they are written; after a stop, those of the stop too."""
        async for event in await self._application.runs.follow(run_id, after):
            after = event.seq
            yield event.to_json()
        if self.stopping:
            await self._stopped()
            for event in await self._application.store.read_events(run_id, after):
                yield event.to_json()

    async def detail(self, run_id: str) -> client.Answer:
        """Return a run."""
        shown: client.Answer = json.loads((await self._application.runs.ready(run_id)).body)
        return shown

    async def list_runs(self, query: stores.RunQuery) -> list[client.Answer]:
        """List runs."""
        return await self._application.runs.rows(await self._application.runs.list_runs(query))

    async def steps(self, run_id: str) -> list[client.Answer]:
        """Return the step log."""
        return [dict(record.line) for record in await self._application.runs.steps(run_id)]

    async def slot(self, run_id: str, name: str) -> client.Answer:
        """Return a slot."""
        return await self._application.runs.slot(run_id, name)

    async def logs(self, run_id: str) -> list[str]:
        """Return the names of the logs."""
        return await self._application.runs.logs(run_id)

    async def log(self, run_id: str, name: str) -> str:
        """Return a log."""
        return (await self._application.runs.log(run_id, name)).decode("utf-8", "replace")

    async def cancel(self, run_id: str) -> client.Answer:
        """End a run, and wait until it has."""
        await self._application.runs.cancel(run_id)
        return _moved(run_id, await self._application.engine.ended(run_id))

    async def pause(self, run_id: str, *, now: bool = False) -> client.Answer:
        """Keep a run from going on."""
        return (await self._application.runs.pause(run_id, interrupt=now)).to_json()

    async def unpause(self, run_id: str) -> client.Answer:
        """Let a paused run go on, here."""
        await self._hold(run_id)
        return (await self._application.runs.unpause(run_id)).to_json()

    async def resume(self, run_id: str, request: requests.ResumeRequest) -> client.Answer:
        """Send a run on, here; one that was only interrupted goes on as it was."""
        found = await self._hold(run_id)
        if found.owner == "service" and found.status in _UNFINISHED and request == requests.ResumeRequest():
            return _moved(run_id, await self._application.engine.submit(run_id))
        return (await self._application.runs.resume(run_id, request)).to_json()

    async def stop(self, run_id: str) -> client.Answer:
        """Stop executing, so that all can go on later; return a run as it stands then."""
        await self._application.engine.stop()
        return await self.detail(run_id)

    async def said(self, run_id: str, position: int) -> str:
        """Return the output of a step of an agent, by its position in the journal."""
        record = (await self._application.runs.steps(run_id))[position]
        return str(
            record.output if record.blob is None else await self._application.store.read_blob(run_id, record.blob)
        )

    def drawing(self, recipe_id: str, args: Mapping[str, plain.Json]) -> str:
        """Draw a recipe of agent_recipes as the arguments would have it."""
        return agent_recipes.render(self._application.catalogue.get(recipe_id).recipe, args)

    async def gates(self, query: gate_inbox.GateQuery) -> list[client.Answer]:
        """Return the inbox."""
        found, _ = await self._application.gates.page(query)
        return [gate.to_json() for gate in found]

    async def gate(self, gate_id: str) -> client.Answer:
        """Return a gate."""
        return (await self._application.gates.show(gate_id)).to_json()

    async def answer(self, gate_id: str, reply: control_gates.Reply) -> client.Answer:
        """Answer a gate; its run is taken up here if it was left behind."""
        found = await self._application.gates.show(gate_id)
        if found.status == "open" and not self._application.engine.open_gates(found.gate.run_id):
            await self._hold(found.gate.run_id)
            await self._application.engine.submit(found.gate.run_id)
        return (await self._application.gates.answer(gate_id, reply)).to_json()

    async def confer(self, new: conferences.NewConference) -> client.Answer:
        """Start a conference that belongs to this process."""
        return (await self._application.conferences.start(dataclasses.replace(new, owner="process"))).to_json()

    async def issues(self, query: engine_issues.IssueQuery) -> list[client.Answer]:
        """Return issues."""
        found, _ = await self._application.issues.page(query)
        return [summary.to_json() for summary in found]

    async def issue(self, issue_id: str) -> client.Answer:
        """Return an issue."""
        return dict(await self._application.issues.show(issue_id))

    async def open_issue(self, new: control_issues.NewIssue) -> client.Answer:
        """Create an issue."""
        return dict((await self._application.issues.add(new)).issue)

    async def edit_issue(self, issue_id: str, edit: control_issues.Edit) -> client.Answer:
        """Change an issue."""
        return dict(await self._application.issues.edit(issue_id, edit))

    async def receipts(self, query: receipts.ReceiptQuery) -> list[client.Answer]:
        """Return receipts."""
        found, _ = await self._application.runs.receipts(query)
        return [dict(receipt.facts) for receipt in found]

    async def receipt(self, receipt_id: str) -> client.Answer:
        """Return a receipt."""
        return await self._application.runs.receipt(receipt_id)

    async def verify(self, run_id: str) -> client.Answer:
        """Check a run's files."""
        return await self._application.upkeep.verify(run_id)

    async def verify_all(self) -> AsyncGenerator[list[client.Answer], None]:
        """Check everything that is stored."""
        cursor: str | None = None
        while True:
            found = await self._application.upkeep.verify_page(cursor, client.VERIFIED_AT_A_TIME)
            yield [dict(report) for report in found.reports]
            if (cursor := found.cursor) is None:
                return

    async def repair(self, run_id: str, *, dry_run: bool = False) -> client.Answer:
        """Cut a run back to its intact prefix, or tell how."""
        return await self._application.upkeep.repair(run_id, dry_run=dry_run)

    async def delete(self, run_id: str) -> None:
        """Delete a run."""
        await self._application.runs.delete(run_id)

    async def recipes(self) -> list[client.Answer]:
        """Return all recipes."""
        return self._application.catalogue.listed()

    async def recipe(self, recipe_id: str) -> client.Answer:
        """Return a recipe."""
        return self._application.catalogue.describe(recipe_id)

    async def validate(self, source: str, dialect: str, stem: str) -> client.Answer:
        """Check a recipe's text."""
        return self._application.catalogue.examine(source, dialect, stem).to_json()

    async def route(self, description: str) -> client.Answer:
        """Choose a recipe."""
        chosen: dict[str, Any] = (await asyncio.to_thread(self._application.route, description)).to_json()
        return chosen

    async def agents(self) -> list[client.Answer]:
        """Return the agents."""
        return await self._application.inventory.agents()

    async def _is_repeated(self, request: requests.StartRequest) -> bool:
        if request.idempotency_key is None:
            return False
        return await self._application.store.find_repeated(request.idempotency_key, request.sha256()) is not None

    async def _stopped(self) -> None:
        if self._signals is not None:
            await self._signals.stopped()

    async def _hold(self, run_id: str) -> stores.RunSummary:
        found = await self._application.store.summary(run_id)
        if found.exclusive_workspace:
            await self._held.take(found.working_dir, run_id=run_id, parent_run_id=found.parent_run_id)
        return found


def _moved(run_id: str, status: states.RunState) -> dict[str, plain.Json]:
    return {"run_id": run_id, "status": status.value}
