"""The use cases of triggers and notifications that commands ask for, each with its route over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.cli.client import Access, Answer, use_case
from app.domain import authors

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.services.notifications import requests
    from app.services.triggers import requests as trigger_requests
    from app.services.triggers import triggers

# -- triggers


@use_case("GET /api/triggers", answers=list)
async def list_triggers(folder: FolderClient) -> list[Answer]:
    """Return all triggers, newest first."""
    return [trigger.to_json() for trigger in await folder.application.unattended.triggers.list_triggers()]


@use_case("GET /api/triggers/{trigger_id}")
async def show_trigger(folder: FolderClient, trigger_id: str) -> Answer:
    """Return a trigger."""
    return (await folder.application.unattended.triggers.show(trigger_id)).to_json()


@use_case("POST /api/triggers", Access.CHANGE)
async def add_trigger(folder: FolderClient, new: trigger_requests.NewTrigger) -> Answer:
    """Create a trigger."""
    return (await folder.application.unattended.triggers.add(new, authors.LOCAL)).trigger.to_json()


@use_case("PATCH /api/triggers/{trigger_id}", Access.CHANGE)
async def edit_trigger(folder: FolderClient, trigger_id: str, edit: trigger_requests.TriggerEdit) -> Answer:
    """Change a trigger."""
    return (await folder.application.unattended.triggers.edit(trigger_id, edit, authors.LOCAL)).to_json()


@use_case("DELETE /api/triggers/{trigger_id}", Access.CHANGE, answers=None)
async def remove_trigger(folder: FolderClient, trigger_id: str) -> None:
    """Remove a trigger."""
    await folder.application.unattended.triggers.remove(trigger_id, authors.LOCAL)


@use_case("POST /api/triggers/{trigger_id}/fire", Access.CHANGE)
async def fire_trigger(folder: FolderClient, trigger_id: str, order: triggers.Fire) -> Answer:
    """Start a run of a trigger now, which belongs to this process."""
    use_cases = folder.application.unattended.triggers
    return (await use_cases.fire(trigger_id, order, authors.LOCAL, owner="process")).to_json()


# -- notifications


@use_case("GET /api/notifications/endpoints", answers=list)
async def list_endpoints(folder: FolderClient) -> list[Answer]:
    """Return all endpoints, newest first."""
    return [endpoint.to_json() for endpoint in await folder.application.unattended.endpoints.list_endpoints()]


@use_case("POST /api/notifications/endpoints", Access.CHANGE)
async def add_endpoint(folder: FolderClient, new: requests.NewEndpoint) -> Answer:
    """Add an endpoint."""
    return (await folder.application.unattended.endpoints.add(new, authors.LOCAL))[0].to_json()


@use_case("PATCH /api/notifications/endpoints/{endpoint_id}", Access.CHANGE, body=lambda _, changes: changes)
async def edit_endpoint(folder: FolderClient, endpoint_id: str, changes: Mapping[str, Any]) -> Answer:
    """Change an endpoint."""
    from app.services.notifications import requests

    edit = requests.EndpointEdit(changes=changes)
    return (await folder.application.unattended.endpoints.edit(endpoint_id, edit, authors.LOCAL)).to_json()


@use_case("DELETE /api/notifications/endpoints/{endpoint_id}", Access.CHANGE, answers=None)
async def remove_endpoint(folder: FolderClient, endpoint_id: str) -> None:
    """Remove an endpoint."""
    await folder.application.unattended.endpoints.remove(endpoint_id, authors.LOCAL)


@use_case("POST /api/notifications/endpoints/{endpoint_id}/test", Access.CHANGE)
async def try_endpoint(folder: FolderClient, endpoint_id: str) -> Answer:
    """Send a test message."""
    return (await folder.application.unattended.endpoints.test(endpoint_id)).to_json()


@use_case("GET /api/notifications/endpoints/{endpoint_id}/dead", answers=list)
async def list_dead(folder: FolderClient, endpoint_id: str) -> list[Answer]:
    """Return the messages that were given up."""
    return [letter.to_json() for letter in await folder.application.unattended.endpoints.list_dead(endpoint_id)]


@use_case("POST /api/notifications/endpoints/{endpoint_id}/replay", Access.CHANGE)
async def replay(folder: FolderClient, endpoint_id: str, message_id: str | None) -> Answer:
    """Deliver dead letters again, when the service runs."""
    return {"replayed": await folder.application.unattended.endpoints.replay(endpoint_id, message_id, authors.LOCAL)}
