"""The client of a running service, over HTTP."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from app import errors, settings
from app.cli import client, remote_plans, remote_problems
from app.domain import issues as engine_issues
from app.domain import plain, receipts
from app.engine import stores
from app.services import conferences, gate_inbox, requests
from app.services import gates as control_gates
from app.services import issues as control_issues

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
_QUIET_STREAM_SECONDS = 120.0
"""A stream that says nothing for so long, not even that it lives, is broken."""

_WITHOUT_BODY = {httpx.codes.NO_CONTENT, httpx.codes.NOT_MODIFIED}

_NOT_IN_BODY = {"idempotency_key", "owner"}


class ServiceClient:
    """Speak to a service; an answer that is no success is raised as the error it tells."""

    executes = False
    stopping = False

    def __init__(self, server: str, token: str | None) -> None:
        """Args:
            server: Address of the service.
            token: Bearer token, if it wants one.

        Raises:
            errors.ConfigurationError: one of them can be no address or no token.
        """
        if token and not re.fullmatch(settings.SENDABLE, token):
            # Told before it is sent: what refuses it would print it.
            raise errors.ConfigurationError("CONTROL_ROOM_API_TOKEN can be no token", code="token_invalid")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        self._server = server
        self.plans = remote_plans.ServicePlans(self._ask)
        try:
            # Reading the certificates takes longer than most answers, and plain HTTP has no use for them.
            verify = httpx.URL(server).scheme != "http"
            self._http = httpx.AsyncClient(
                base_url=server, headers=headers, timeout=timeout, trust_env=False, verify=verify
            )
        except httpx.InvalidURL as error:
            raise self._unreachable(error) from error

    async def __aenter__(self) -> ServiceClient:
        """Return the client; the first request connects."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def start(self, request: requests.StartRequest) -> client.Answer:
        """Post a run."""
        headers = remote_plans.keyed(request.idempotency_key)
        return self._object(await self._send("POST", "/api/runs", json=_body(request), headers=headers))

    async def plan(self, request: requests.StartRequest) -> client.Answer:
        """Refuse: a service has no dry run."""
        raise _folder_only("A dry run")

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[client.Answer, None]:
        """Read the run's Server-Sent Events."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        timeout = httpx.Timeout(_QUIET_STREAM_SECONDS, connect=_CONNECT_SECONDS)
        try:
            async with self._http.stream("GET", _run(run_id, "events"), headers=headers, timeout=timeout) as answer:
                if answer.is_error:
                    await answer.aread()
                    raise remote_problems.told(answer)
                async for line in _lines(answer):
                    if line.startswith(b"data:"):
                        yield json.loads(line.removeprefix(b"data:"))
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        except ValueError as error:
            raise self._strange(answer) from error

    async def detail(self, run_id: str) -> client.Answer:
        """Get a run."""
        return self._object(await self._send("GET", _run(run_id)))

    async def list_runs(self, query: stores.RunQuery) -> list[client.Answer]:
        """Get the runs of a query."""
        return self._array(await self._send("GET", "/api/runs", params=_parameters(query)))

    async def steps(self, run_id: str) -> list[client.Answer]:
        """Get the full step log."""
        return self._array(await self._send("GET", _run(run_id, "steps")))

    async def slot(self, run_id: str, name: str) -> client.Answer:
        """Get a slot."""
        return self._object(await self._send("GET", _run(run_id, "cache", name)))

    async def logs(self, run_id: str) -> list[str]:
        """Get the names of the logs."""
        return self._array(await self._send("GET", _run(run_id, "logs")))

    async def log(self, run_id: str, name: str) -> str:
        """Get a log."""
        return (await self._send("GET", _run(run_id, "logs", name))).text

    async def cancel(self, run_id: str) -> client.Answer:
        """Post a cancel."""
        return self._object(await self._send("POST", _run(run_id, "cancel")))

    async def pause(self, run_id: str, *, now: bool = False) -> client.Answer:
        """Post a pause."""
        return self._object(await self._send("POST", _run(run_id, "pause"), json={"interrupt": True} if now else {}))

    async def unpause(self, run_id: str) -> client.Answer:
        """Post the end of a pause."""
        return self._object(await self._send("POST", _run(run_id, "unpause")))

    async def resume(self, run_id: str, request: requests.ResumeRequest) -> client.Answer:
        """Post a resume."""
        body = {"from": request.from_key, "args": request.args, "options": request.options}
        given = {name: value for name, value in body.items() if value is not None}
        given |= {"recipe": "current"} if request.current_recipe else {}
        given |= {"conversation": "new"} if request.new_conversation else {}
        return self._object(await self._send("POST", _run(run_id, "resume"), json=given))

    async def gates(self, query: gate_inbox.GateQuery) -> list[client.Answer]:
        """Get the inbox."""
        return self._array(await self._send("GET", "/api/gates", params=_parameters(query)))

    async def gate(self, gate_id: str) -> client.Answer:
        """Get a gate."""
        return self._object(await self._send("GET", f"/api/gates/{quote(gate_id, safe='')}"))

    async def answer(self, gate_id: str, reply: control_gates.Reply) -> client.Answer:
        """Post an answer."""
        headers = remote_plans.keyed(reply.idempotency_key)
        body = {"decision": reply.decision, "message": reply.message, "shown_sha256": reply.shown_sha256}
        path = f"/api/gates/{quote(gate_id, safe='')}"
        return self._object(await self._send("POST", path, json=body, headers=headers))

    async def confer(self, new: conferences.NewConference) -> client.Answer:
        """Post a conference."""
        headers = remote_plans.keyed(new.idempotency_key)
        body = {name: value for name, value in _given(new).items() if name not in _NOT_IN_BODY}
        return self._object(await self._send("POST", "/api/conferences", json=body, headers=headers))

    async def issues(self, query: engine_issues.IssueQuery) -> list[client.Answer]:
        """Get issues."""
        return self._array(await self._send("GET", "/api/issues", params=_given(query)))

    async def issue(self, issue_id: str) -> client.Answer:
        """Get an issue."""
        return self._object(await self._send("GET", f"/api/issues/{quote(issue_id, safe='')}"))

    async def open_issue(self, new: control_issues.NewIssue) -> client.Answer:
        """Post an issue."""
        headers = remote_plans.keyed(new.idempotency_key)
        body = {name: value for name, value in _given(new).items() if name not in _NOT_IN_BODY}
        return self._object(await self._send("POST", "/api/issues", json=body, headers=headers))

    async def edit_issue(self, issue_id: str, edit: control_issues.Edit) -> client.Answer:
        """Patch an issue."""
        path = f"/api/issues/{quote(issue_id, safe='')}"
        return self._object(await self._send("PATCH", path, json=_given(edit)))

    async def receipts(self, query: receipts.ReceiptQuery) -> list[client.Answer]:
        """Get receipts."""
        return self._array(await self._send("GET", "/api/audit/receipts", params=_given(query)))

    async def receipt(self, receipt_id: str) -> client.Answer:
        """Get a receipt."""
        return self._object(await self._send("GET", f"/api/audit/receipts/{quote(receipt_id, safe='')}"))

    async def verify(self, run_id: str) -> client.Answer:
        """Get the verification of a run."""
        return self._object(await self._send("GET", _run(run_id, "verification")))

    async def verify_all(self) -> AsyncGenerator[list[client.Answer], None]:
        """Get the verification of everything, page by page."""
        path: str | None = f"/api/verification?limit={client.VERIFIED_AT_A_TIME}"
        while path is not None:
            answer = await self._send("GET", path)
            yield self._array(answer)
            path = answer.links.get("next", {}).get("url")

    async def repair(self, run_id: str, *, dry_run: bool = False) -> client.Answer:
        """Post a repair."""
        return self._object(await self._send("POST", _run(run_id, "repair"), json={"dry_run": dry_run}))

    async def delete(self, run_id: str) -> None:
        """Delete a run."""
        await self._send("DELETE", _run(run_id))

    async def recipes(self) -> list[client.Answer]:
        """Get all recipes."""
        return self._array(await self._send("GET", "/api/recipes"))

    async def recipe(self, recipe_id: str) -> client.Answer:
        """Get a recipe."""
        return self._object(await self._send("GET", f"/api/recipes/{quote(recipe_id, safe='')}"))

    async def validate(self, source: str, dialect: str, stem: str) -> client.Answer:
        """Post a recipe to be checked."""
        body = {"recipe": source, "dialect": dialect}
        return self._object(await self._send("POST", "/api/recipes/validate", json=body))

    async def route(self, description: str) -> client.Answer:
        """Post a description to be routed."""
        return self._object(await self._send("POST", "/api/route", json={"description": description}))

    async def agents(self) -> list[client.Answer]:
        """Get the agents."""
        return self._array(await self._send("GET", "/api/agents"))

    async def _send(self, method: str, path: str, **parts: Any) -> httpx.Response:
        try:
            answer = await self._http.request(method, path, **parts)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if not (answer.is_success or answer.status_code == httpx.codes.NOT_MODIFIED):
            raise remote_problems.told(answer)
        return answer

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, plain.Json] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the JSON that is answered, None where nothing has changed, or is left."""
        answer = await self._send(method, path, json=body, params=params, headers=headers)
        return None if answer.status_code in _WITHOUT_BODY else self._json(answer)

    def _object(self, answer: httpx.Response) -> client.Answer:
        value = self._json(answer)
        if not isinstance(value, dict):
            raise self._strange(answer)
        return value

    def _array(self, answer: httpx.Response) -> list[Any]:
        value = self._json(answer)
        if not isinstance(value, list):
            raise self._strange(answer)
        return value

    def _json(self, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except ValueError as error:
            raise self._strange(answer) from error

    def _unreachable(self, error: Exception) -> errors.ConfigurationError:
        reason = str(error) or type(error).__name__
        return errors.ConfigurationError(f"{self._server} cannot be reached: {reason}", code="server_unreachable")

    def _strange(self, answer: httpx.Response) -> errors.ConfigurationError:
        kind = answer.headers.get("content-type", "nothing")
        return errors.ConfigurationError(
            f"{self._server} answered with {kind} instead of JSON; is it Control Room?", code="server_error"
        )


async def _lines(answer: httpx.Response) -> AsyncGenerator[bytes, None]:
    # By line feeds alone: JSON may hold what else ends a line in Unicode.
    rest = b""
    async for part in answer.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line


def _body(request: requests.StartRequest) -> dict[str, Any]:
    blank = requests.StartRequest()
    names = {item.name for item in dataclasses.fields(request)} - _NOT_IN_BODY
    return {name: value for name in sorted(names) if (value := getattr(request, name)) != getattr(blank, name)}


def _parameters(query: stores.RunQuery | gate_inbox.GateQuery) -> dict[str, str]:
    given = {item.name: getattr(query, item.name) for item in dataclasses.fields(query)}
    given["label"] = ":".join(query.label) if query.label else None
    return {name: str(value) for name, value in given.items() if value is not None}


def _given(fields: Any) -> dict[str, Any]:
    given = ((item.name, getattr(fields, item.name)) for item in dataclasses.fields(fields))
    return {name: value for name, value in given if value is not None}


def _run(run_id: str, *parts: str) -> str:
    return "/".join(["/api/runs", *(quote(part, safe="") for part in (run_id, *parts))])


def _folder_only(what: str) -> errors.RequestInvalid:
    return errors.RequestInvalid(f"{what} needs the project's folder: leave --server out.", code="folder_only")
