"""The use cases of triggers and notifications that commands ask for, each with its route over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.cli.client import Access, Answer, use_case
from app.domain import authors

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.services.triggers import requests as trigger_requests
    from app.services.triggers import triggers

# -- triggers


@use_case("GET /api/triggers", answers=list)
async def list_triggers(folder: FolderClient) -> list[Answer]:
    """Return all triggers, newest first."""
    return [trigger.to_json() for trigger in await folder.application.triggering.triggers.list_triggers()]


@use_case("GET /api/triggers/{trigger_id}")
async def show_trigger(folder: FolderClient, trigger_id: str) -> Answer:
    """Return a trigger."""
    return (await folder.application.triggering.triggers.show(trigger_id)).to_json()


@use_case("POST /api/triggers", Access.CHANGE)
async def add_trigger(folder: FolderClient, new: trigger_requests.NewTrigger) -> Answer:
    """Create a trigger."""
    return (await folder.application.triggering.triggers.add(new, authors.LOCAL)).trigger.to_json()


@use_case("PATCH /api/triggers/{trigger_id}", Access.CHANGE)
async def edit_trigger(folder: FolderClient, trigger_id: str, edit: trigger_requests.TriggerEdit) -> Answer:
    """Change a trigger."""
    return (await folder.application.triggering.triggers.edit(trigger_id, edit)).to_json()


@use_case("DELETE /api/triggers/{trigger_id}", Access.CHANGE, answers=None)
async def remove_trigger(folder: FolderClient, trigger_id: str) -> None:
    """Remove a trigger."""
    await folder.application.triggering.triggers.remove(trigger_id)


@use_case("POST /api/triggers/{trigger_id}/fire", Access.CHANGE)
async def fire_trigger(folder: FolderClient, trigger_id: str, order: triggers.Fire) -> Answer:
    """Start a run of a trigger now, which belongs to this process."""
    use_cases = folder.application.triggering.triggers
    return (await use_cases.fire(trigger_id, order, authors.LOCAL, owner="process")).to_json()
