"""The use cases of commands: each with its route over HTTP, and the function that answers it in process."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from app.cli.client import Access, JsonObject, use_case
from app.domain import authors

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.domain import issues, receipts
    from app.engine import stores
    from app.services import conferences, gate_inbox, gates, requests
    from app.services import issues as issue_requests

# -- runs


@use_case("POST /api/runs", Access.START)
async def start_run(folder: FolderClient, request: requests.StartRequest) -> JsonObject:
    """Start a run that belongs to this process; it claims an exclusive workspace before it is created."""
    application = folder.application
    wanted = application.starter.prepare_now(request)
    if wanted.exclusive_workspace and not await _is_repeated(folder, request):
        await folder.claims.claim(wanted.working_dir, parent_run_id=request.parent_run_id)
    # This process is not notified when other processes end runs, so it cannot wait under a key.
    keyed = request.concurrency and request.concurrency.without_waiting()
    own = dataclasses.replace(request, owner="process", concurrency=keyed)
    started = await application.runs.start(own, author=authors.LOCAL)
    folder.refuse_abandoned(started)
    return {"run_id": started.run_id, "status": started.status.value}


@use_case("POST /api/preflight", Access.PREVIEW)
async def plan_run(folder: FolderClient, request: requests.StartRequest) -> JsonObject:
    """Check a request and return what would run, without starting it."""
    from app.services import preflight

    application = folder.application
    refuse_locked, store = application.runs.refuse_locked, application.store
    examiner = preflight.Preflight(application.starter, application.catalogue, refuse_locked, store, can_wait=False)
    return (await examiner.examine(request)).to_json()


@use_case("GET /api/runs", answers=list)
async def list_runs(folder: FolderClient, query: stores.RunQuery) -> list[JsonObject]:
    """Return runs, newest first."""
    found, _ = await folder.application.runs.page(query)
    return [run.to_json() for run in found]


@use_case("GET /api/runs/{run_id}")
async def show_run(folder: FolderClient, run_id: str) -> JsonObject:
    """Return a run with its newest steps and its slots."""
    shown: JsonObject = json.loads((await folder.application.runs.reader.ready(run_id)).body)
    return shown


@use_case("GET /api/runs/{run_id}/steps", answers=list)
async def list_steps(folder: FolderClient, run_id: str) -> list[JsonObject]:
    """Return the full step log."""
    return [dict(record.line) for record in await folder.application.runs.steps(run_id)]


@use_case("GET /api/runs/{run_id}/graph")
async def show_graph(folder: FolderClient, run_id: str) -> JsonObject:
    """Return the graph of the recipe in the version that the run froze, with the state of each node."""
    shown: JsonObject = json.loads((await folder.application.runs.graph(run_id)).body)
    return shown


@use_case("GET /api/runs/{run_id}/cache/{name}")
async def show_slot(folder: FolderClient, run_id: str, name: str) -> JsonObject:
    """Return a slot."""
    return await folder.application.runs.reader.slot(run_id, name)


@use_case("GET /api/runs/{run_id}/logs", answers=list)
async def list_logs(folder: FolderClient, run_id: str) -> list[str]:
    """Return the names of the run's logs."""
    return await folder.application.runs.logs(run_id)


@use_case("GET /api/runs/{run_id}/logs/{name}", answers=str)
async def show_log(folder: FolderClient, run_id: str, name: str) -> str:
    """Return one log."""
    return (await folder.application.runs.log(run_id, name)).decode("utf-8", "replace")


@use_case("POST /api/runs/{run_id}/cancel", Access.CHANGE)
async def cancel_run(folder: FolderClient, run_id: str) -> JsonObject:
    """Cancel an unfinished run and wait until it has ended."""
    await folder.application.runs.cancel(run_id, authors.LOCAL)
    return {"run_id": run_id, "status": (await folder.application.engine.ended(run_id)).value}


@use_case("POST /api/runs/{run_id}/pause", Access.CHANGE)
async def pause_run(folder: FolderClient, run_id: str, interrupt: bool = False) -> JsonObject:
    """Pause a run at its next step boundary, or at once."""
    return (await folder.application.runs.pause(run_id, authors.LOCAL, interrupt=interrupt)).to_json()


@use_case("POST /api/runs/{run_id}/unpause", Access.CHANGE)
async def unpause_run(folder: FolderClient, run_id: str) -> JsonObject:
    """Continue a paused run, and the runs that wait for it, in this process."""
    await folder.claim_with_above(run_id)
    moved = await folder.application.runs.unpause(run_id, authors.LOCAL)
    await folder.continue_above(run_id)
    return moved.to_json()


def _resume_body(run_id: str, request: requests.ResumeRequest) -> dict[str, Any]:
    body = {"from": request.from_key, "args": request.args, "options": request.options}
    body |= {"recipe": "current" if request.current_recipe else None}
    body |= {"conversation": "new" if request.new_conversation else None}
    return {name: value for name, value in body.items() if value is not None}


@use_case("POST /api/runs/{run_id}/resume", Access.CHANGE, body=_resume_body)
async def resume_run(folder: FolderClient, run_id: str, request: requests.ResumeRequest) -> JsonObject:
    """Resume a run in this process, and continue the runs that wait for it; one that was only interrupted continues
    unchanged.
    """
    await folder.claim_with_above(run_id)
    if await folder.application.runs.continues_as_it_was(run_id, request):
        moved = {"run_id": run_id, "status": (await folder.application.engine.submit(run_id)).value}
    else:
        moved = (await folder.application.runs.resume(run_id, request, authors.LOCAL)).to_json()
    # A service does so by itself.
    await folder.application.budgets.send_on(await folder.application.runs.parked_below(run_id))
    await folder.continue_above(run_id)
    return moved


@use_case("DELETE /api/runs/{run_id}", Access.CHANGE, answers=None)
async def delete_run(folder: FolderClient, run_id: str) -> None:
    """Delete a finished run."""
    await folder.application.runs.delete(run_id, authors.LOCAL)


@use_case("GET /api/runs/{run_id}/verification")
async def verify_run(folder: FolderClient, run_id: str) -> JsonObject:
    """Check a run's start, journals and blobs."""
    return await folder.application.maintenance.verify(run_id)


@use_case("POST /api/runs/{run_id}/repair", body=lambda run_id: {"dry_run": True})
async def plan_repair(folder: FolderClient, run_id: str) -> JsonObject:
    """Return what a repair would cut off."""
    return await folder.application.maintenance.repair(run_id, dry_run=True)


@use_case("POST /api/runs/{run_id}/repair", Access.CHANGE)
async def repair_run(folder: FolderClient, run_id: str) -> JsonObject:
    """Cut a damaged run back to its intact prefix."""
    return await folder.application.maintenance.repair(run_id, authors.LOCAL)


@use_case("POST /api/conferences", Access.START)
async def confer(folder: FolderClient, new: conferences.NewConference) -> JsonObject:
    """Start a conference that belongs to this process."""
    own = dataclasses.replace(new, owner="process")
    started = await folder.application.conferences.start(own, authors.LOCAL)
    folder.refuse_abandoned(started)
    return started.to_json()


# -- gates


@use_case("GET /api/gates", answers=list)
async def list_gates(folder: FolderClient, query: gate_inbox.GateQuery) -> list[JsonObject]:
    """Return the open gates."""
    found, _ = await folder.application.gates.page(query)
    return [gate.to_json() for gate in found]


@use_case("GET /api/gates/{gate_id}")
async def show_gate(folder: FolderClient, gate_id: str) -> JsonObject:
    """Return a gate, open or not, with the content to decide on in parts."""
    return (await folder.application.gates.detail(gate_id)).to_json()


@use_case("POST /api/gates/{gate_id}", Access.CHANGE)
async def answer_gate(folder: FolderClient, gate_id: str, reply: gates.Reply) -> JsonObject:
    """Answer a gate; its run, and the runs that wait for it, continue in this process."""
    application = folder.application
    found = await application.gates.show(gate_id)
    if found.status == "open" and not application.engine.open_gates(found.gate.run_id):
        await folder.claim_with_above(found.gate.run_id)
        await application.engine.submit(found.gate.run_id)
        await folder.continue_above(found.gate.run_id)
    return (await application.gates.answer(gate_id, reply, authors.LOCAL)).to_json()


# -- issues and receipts


@use_case("GET /api/issues", answers=list)
async def list_issues(folder: FolderClient, query: issues.IssueQuery) -> list[JsonObject]:
    """Return issues, newest first."""
    found, _ = await folder.application.issues.page(query)
    return [summary.to_json() for summary in found]


@use_case("GET /api/issues/{issue_id}")
async def show_issue(folder: FolderClient, issue_id: str) -> JsonObject:
    """Return an issue."""
    return dict(await folder.application.issues.show(issue_id))


@use_case("POST /api/issues", Access.CHANGE)
async def open_issue(folder: FolderClient, new: issue_requests.NewIssue) -> JsonObject:
    """Create an issue."""
    return dict((await folder.application.issues.add(new, authors.LOCAL)).issue)


@use_case("PATCH /api/issues/{issue_id}", Access.CHANGE)
async def edit_issue(folder: FolderClient, issue_id: str, edit: issue_requests.Edit) -> JsonObject:
    """Change an issue."""
    return dict(await folder.application.issues.edit(issue_id, edit, authors.LOCAL))


@use_case("GET /api/audit/receipts", answers=list)
async def list_receipts(folder: FolderClient, query: receipts.ReceiptQuery) -> list[JsonObject]:
    """Return receipts of tool executions, without their payloads."""
    found, _ = await folder.application.runs.receipts(query)
    return [receipt.to_json() for receipt in found]


@use_case("GET /api/audit/receipts/{receipt_id}")
async def show_receipt(folder: FolderClient, receipt_id: str) -> JsonObject:
    """Return a receipt, and whether it is unchanged."""
    return await folder.application.runs.receipt(receipt_id)


# -- recipes and agents


@use_case("GET /api/recipes", Access.RECIPES, answers=list)
async def list_recipes(folder: FolderClient) -> list[JsonObject]:
    """Return all recipes, invalid ones with their flaws."""
    return folder.application.catalogue.listed()


@use_case("GET /api/recipes/{recipe_id}", Access.RECIPES)
async def show_recipe(folder: FolderClient, recipe_id: str) -> JsonObject:
    """Return a recipe with the schema of its arguments and its graph."""
    return folder.application.catalogue.describe(recipe_id)


@use_case(
    "POST /api/recipes/validate",
    Access.RECIPES,
    body=lambda source, dialect, stem: {"recipe": source, "dialect": dialect},
)
async def validate_recipe(folder: FolderClient, source: str, dialect: str, stem: str) -> JsonObject:
    """Check the text of a recipe."""
    return folder.application.catalogue.examine(source, dialect, stem).to_json()


@use_case("POST /api/route", Access.RECIPES)
async def route(folder: FolderClient, description: str) -> JsonObject:
    """Choose a recipe for a description."""
    import asyncio

    chosen: JsonObject = (await asyncio.to_thread(folder.application.route, description)).to_json()
    return chosen


@use_case("GET /api/agents", Access.EXAMINE, answers=list)
async def list_agents(folder: FolderClient) -> list[JsonObject]:
    """Return the agents."""
    return await folder.application.inventory.agents()


async def _is_repeated(folder: FolderClient, request: requests.StartRequest) -> bool:
    key, store = request.idempotency_key, folder.application.store
    return key is not None and await store.find_repeated(key, request.sha256()) is not None
