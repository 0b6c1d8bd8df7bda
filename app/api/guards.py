"""Guards: which clients are admitted, by site, token and ticket."""

from __future__ import annotations

import base64
import hmac
import ipaddress
import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app import settings
from app.api import connections, problems, tickets

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered without a token: they tell nothing that a port scan would not."""

SUBPROTOCOL = "control-room"
"""Subprotocol of the WebSocket, for clients that have to name one."""

BEARER_PREFIX = "control-room.bearer."
"""Beginning of the subprotocol that carries the token of a client that can set no header, in base64url behind it."""

_UNAUTHORIZED = "the header `Authorization: Bearer TOKEN` is missing or wrong"
_TICKET_REFUSED = "the ticket was used, has expired or is unknown; get another one with POST /api/tickets"
_HOST = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9_-][A-Za-z0-9._-]{0,253}))(?::(?P<port>[0-9]{0,5}))?"
)
_LARGEST_PORT = 65535
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared with, never listened on


class SiteGuard:
    """Refuse an unknown `Host` and a foreign `Origin`."""

    def __init__(self, app: ASGIApp, server: settings.ServerSettings, warnings: connections.Warnings) -> None:
        self._app = app
        self._warnings = warnings
        own = () if server.host in _WILDCARDS else (server.host,)
        named = (*_LOOPBACK_NAMES, *own, *server.allowed_hosts)
        self._hosts = frozenset(filter(None, (host_name(f"[{name}]") or host_name(name) for name in named)))
        self._origins = frozenset(origin.lower().rstrip("/") for origin in server.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request of this site through."""
        refusal = None if scope["type"] == "lifespan" else self._refusal(Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            self._warnings.tell(refusal.code, refusal.detail, address(scope))
            await refuse(refusal, scope, receive, send)

    def _refusal(self, headers: Headers) -> problems.Problem | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or host_name(hosts[0]) not in self._hosts:
            shown = hosts[0][:100] if hosts else "none"
            detail = f"Host {shown} is not allowed; add it to CONTROL_ROOM_ALLOWED_HOSTS"
            return problems.of_status(400, detail, code="unknown_host")
        if any(not self._is_known(origin.lower(), hosts[0].lower()) for origin in headers.getlist("origin")):
            detail = f"Origin {headers['origin'][:100]} is not allowed; add it to CONTROL_ROOM_ALLOWED_ORIGINS"
            return problems.of_status(403, detail, code="foreign_origin")
        return None

    def _is_known(self, origin: str, host: str) -> bool:
        return origin in (f"http://{host}", f"https://{host}") or origin in self._origins


class TokenGuard:
    """Refuse a request without the bearer token, where there is one."""

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        issued: tickets.Tickets,
        warnings: connections.Warnings,
        open_paths: Iterable[str] = OPEN_PATHS,
    ) -> None:
        self._app = app
        self._warnings = warnings
        self._tickets = issued
        self._expected = token.encode() if token else None
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request with the token through, and a stream with a ticket."""
        asked, ticket = tickets.taken_out(scope) if tickets.is_stream(scope) else (scope, None)
        # A ticket is used up even where it is not needed, so that no one else can use it.
        let_in = ticket is not None and self._tickets.use(ticket)
        if let_in or self._lets_in(scope):
            await self._app(asked, receive, send)
        else:
            challenge = {"WWW-Authenticate": "Bearer"}
            detail = _UNAUTHORIZED if ticket is None else _TICKET_REFUSED
            refusal = problems.of_status(401, detail, headers=challenge)
            self._warnings.tell(refusal.code, detail, address(scope))
            await refuse(refusal, scope, receive, send)

    def _lets_in(self, scope: Scope) -> bool:
        if self._expected is None or scope["type"] == "lifespan" or scope["path"] in self._open_paths:
            return True
        return _carries(self._expected, Headers(scope=scope)) or _offers(self._expected, scope)


async def refuse(problem: problems.Problem, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with a problem; a WebSocket does not open then."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": problem.code})
    else:
        await problem.response()(scope, receive, send)


def _carries(expected: bytes, headers: Headers) -> bool:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return hmac.compare_digest(token.strip().encode(), expected) and scheme.lower() == "bearer"


def _offers(expected: bytes, scope: Scope) -> bool:
    # A page cannot set headers of a WebSocket, but it can name subprotocols.
    offered = scope["subprotocols"] if scope["type"] == "websocket" else ()
    found = [name.removeprefix(BEARER_PREFIX) for name in offered if name.startswith(BEARER_PREFIX)]
    encoded = base64.urlsafe_b64encode(expected).rstrip(b"=")
    return any(hmac.compare_digest(one.encode(), encoded) for one in found)


def host_name(host: str) -> str | None:
    """Return the name or address of a `Host` header, in one spelling; None where it has no form of
    one (RFC 9110, 7.2).
    """
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > _LARGEST_PORT:
        return None
    if found["name"] is not None:
        return found["name"].lower().removesuffix(".")
    try:
        bracketed = ipaddress.IPv6Address(found["address"])
    except ValueError:
        return None
    return str(bracketed.ipv4_mapped or bracketed)


def address(scope: Scope) -> str:
    """Return the address that a request comes from."""
    return str((scope.get("client") or ("unknown",))[0])
