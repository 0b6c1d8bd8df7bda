"""Session plans of a running service, over HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote

from app import errors
from app.cli import client
from app.cli.plan_client import Move
from app.domain import plain
from app.domain import plans as engine_plans
from app.services import requests as control_requests
from app.services.plans import requests

_BLANK_PLAN = requests.NewPlan()
_BLANK_TASK = requests.NewTask(description="")


class Ask(Protocol):
    """Sends a request and returns the JSON of its answer."""

    async def __call__(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, plain.Json] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request."""


class ServicePlans:
    """Speak of plans to a service."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def create(self, new: requests.NewPlan) -> client.Answer:
        """Post a plan."""
        body = _given(new, _BLANK_PLAN, without={"idempotency_key", "tasks"})
        if new.tasks:
            body["tasks"] = [_task(task) for task in new.tasks]
        headers = keyed(new.idempotency_key)
        found: client.Answer = await self._ask("POST", "/api/sessions", body=body, headers=headers)
        return found

    async def list(self, query: engine_plans.PlanQuery) -> list[client.Answer]:
        """Get plans."""
        params = {"limit": query.limit} | ({"status": query.status} if query.status else {})
        found: list[client.Answer] = await self._ask("GET", "/api/sessions", params=params)
        return found

    async def show(self, session_id: str) -> client.Answer:
        """Get a plan."""
        found: client.Answer = await self._ask("GET", _place(session_id))
        return found

    async def delete(self, session_id: str, revision: int | None) -> None:
        """Delete a plan."""
        await self._ask("DELETE", _place(session_id), headers=_matched(revision))

    async def go_on(self, session_id: str) -> client.Answer:
        """Get a plan; its service goes on with it unasked."""
        return await self.show(session_id)

    async def wait(self, session_id: str, seconds: float, revision: int) -> client.Answer:
        """Get a plan by a long poll; it is got again where nothing has changed, which is cheap."""
        params, headers = {"wait": seconds}, {"If-None-Match": f'"{revision}"'}
        found: client.Answer | None = await self._ask("GET", _place(session_id), params=params, headers=headers)
        return await self.show(session_id) if found is None else found

    async def move(self, session_id: str, move: Move, revision: int | None) -> client.Answer:
        """Post a move."""
        return await self._change("POST", _place(session_id, move.value), revision)

    async def reorder(self, session_id: str, order: Sequence[int], revision: int | None) -> client.Answer:
        """Patch the order."""
        return await self._change("PATCH", _place(session_id), revision, {"order": [*order]})

    async def add_task(self, session_id: str, new: requests.NewTask, revision: int | None) -> client.Answer:
        """Post a task."""
        headers = keyed(new.idempotency_key)
        return await self._change("POST", _place(session_id, "tasks"), revision, _task(new), headers)

    async def edit_task(
        self, session_id: str, task_id: int, edit: requests.TaskEdit, revision: int | None
    ) -> client.Answer:
        """Patch a task."""
        return await self._change("PATCH", _place(session_id, "tasks", task_id), revision, edit.changes())

    async def remove_task(self, session_id: str, task_id: int, revision: int | None) -> client.Answer:
        """Delete a task."""
        place = _place(session_id, "tasks", task_id)
        found: client.Answer = await self._ask("DELETE", place, headers=_matched(revision))
        return found

    async def answer(
        self, session_id: str, task_id: int, answer: requests.Answer, revision: int | None
    ) -> client.Answer:
        """Post an answer."""
        body = _given(answer, requests.Answer(answer=""))
        return await self._change("POST", _place(session_id, "tasks", task_id, "answer"), revision, body)

    async def force_start(self, session_id: str, task_id: int, revision: int | None) -> client.Answer:
        """Post a forced start."""
        return await self._change("POST", _place(session_id, "tasks", task_id, "force-start"), revision)

    async def retry(self, session_id: str, task_id: int, fresh: bool, revision: int | None) -> client.Answer:
        """Post a retry."""
        body = {"fresh": True} if fresh else {}
        return await self._change("POST", _place(session_id, "tasks", task_id, "retry"), revision, body)

    async def _change(
        self,
        method: str,
        path: str,
        revision: int | None,
        body: Mapping[str, plain.Json] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> client.Answer:
        seen = {} if revision is None else {"revision": revision}
        found: client.Answer = await self._ask(method, path, body={**(body or {}), **seen}, headers=headers)
        return found


def keyed(idempotency_key: str | None) -> dict[str, str]:
    """Return the header under which a request may be repeated.

    Raises:
        errors.RequestInvalid: no header can carry the key.
    """
    flaws = control_requests.key_flaws(idempotency_key)
    if flaws:
        raise errors.RequestInvalid(flaws[0].message, flaws=flaws)
    return {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}


def _matched(revision: int | None) -> dict[str, str] | None:
    return None if revision is None else {"If-Match": f'"{revision}"'}


def _task(task: requests.NewTask) -> dict[str, Any]:
    return {"description": task.description} | _given(task, _BLANK_TASK, without={"idempotency_key"})


def _given(value: Any, blank: Any, without: frozenset[str] | set[str] = frozenset()) -> dict[str, Any]:
    names = [item.name for item in dataclasses.fields(value) if item.name not in without]
    return {name: getattr(value, name) for name in names if getattr(value, name) != getattr(blank, name)}


def _place(session_id: str, *parts: str | int) -> str:
    return "/".join(["/api/sessions", *(quote(str(part), safe="") for part in (session_id, *parts))])
