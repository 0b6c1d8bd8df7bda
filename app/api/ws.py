"""The WebSocket route: recipes and prompts in conversations (agent-recipes, 16)."""

from __future__ import annotations

import dataclasses

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from app import clock, errors
from app.api import callers, dependencies, problems, refusals
from app.api.use_cases import Services
from app.api.ws_connection import Connection

router = APIRouter()


@router.websocket(callers.SOCKET_PATH)
async def converse(socket: WebSocket) -> None:
    """Serve a client while it is connected."""
    services: Services | None = getattr(socket.app.state, "services", None)
    if services is None:
        refusal = refusals.problem(dependencies.why_starting(socket.app.state))
        assert refusal is not None
        await problems.refuse(refusal, socket.scope, socket.receive, socket.send)
        return
    try:
        caller = dataclasses.replace(callers.caller_of(socket), author=callers.author_of(socket))
    except errors.RequestInvalid as error:
        refusal = refusals.problem(error)
        assert refusal is not None
        await problems.refuse(refusal, socket.scope, socket.receive, socket.send)
        return
    await socket.accept(callers.SUBPROTOCOL if callers.SUBPROTOCOL in socket.scope["subprotocols"] else None)
    service, most = services.conversation_service, services.max_message_bytes
    await Connection(socket, service, clock.RandomIds(), most, caller).serve()


@router.get(callers.SOCKET_PATH, include_in_schema=False)
async def explain(request: Request) -> Response:
    """Answer that this address is not a page."""
    headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
    return problems.of_status(426, "this address is a WebSocket", headers=headers).response()
