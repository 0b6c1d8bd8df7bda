"""Guards: which clients are admitted, by site, token and ticket."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from app import errors, settings
from app.api import browser_sessions, callers, problems, refusals, roles, scoping, tickets
from app.api.dependencies import Services
from app.domain import access

OPEN_PATHS = frozenset({"/healthz", "/readyz", browser_sessions.PATH})
"""Answered without a token: they reveal no more than a port scan, or exchange the token for a sign-in."""

SUBPROTOCOL = "control-room"  # Subprotocol of the WebSocket, for clients that have to name one.

BEARER_PREFIX = "control-room.bearer."
"""Beginning of the subprotocol that carries the token of a client that can set no header, in base64url behind it."""

OPEN_PREFIX = "/hooks/"  # Beginning of the addresses that hold their own credential.

_UNAUTHORIZED = "the header `Authorization: Bearer TOKEN` is missing or wrong"
_TICKET_REFUSED = "the ticket was used, has expired or is unknown; get another one with POST /api/tickets"
_HOST = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9_-][A-Za-z0-9._-]{0,253}))(?::(?P<port>[0-9]{0,5}))?"
)
_LARGEST_PORT = 65535
_STRANGER = access.Caller(role=access.Role.VIEWER)
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_MOST_SPELLED = 64
_POLICY = 1008
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared with, never listened on


class Ended(Exception):
    """The key of a stream does not count any more."""


class SiteGuard:
    """Refuse an unknown `Host` and a foreign `Origin`."""

    def __init__(self, server: settings.ServerSettings) -> None:
        own = () if server.host in _WILDCARDS else (server.host,)
        named = (*_LOOPBACK_NAMES, *own, *server.allowed_hosts)
        self._hosts = frozenset(filter(None, (host_name(f"[{name}]") or host_name(name) for name in named)))
        self._origins = frozenset(origin.lower().rstrip("/") for origin in server.allowed_origins)
        self._spelled: set[bytes] = set()

    def refusal(self, scope: Scope) -> problems.Problem | None:
        """Return why a request is not of this site; None if it is."""
        # DNS rebinding: a page elsewhere can point its own name to this address, and the browser then takes both for
        # one origin. It still sends that name as Host. Two Host headers are refused, since a proxy may go by the
        # other one.
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not (hosts[0] in self._spelled or self._is_served(hosts[0])):
            shown = hosts[0][:100].decode("latin-1") if hosts else "none"
            detail = f"Host {shown} is not allowed; add it to CONTROL_ROOM_ALLOWED_HOSTS"
            return problems.of_status(400, detail, code="unknown_host")
        origins = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
        if origins and not all(self._is_known(origin.lower(), hosts[0].decode().lower()) for origin in origins):
            detail = f"Origin {origins[0][:100]} is not allowed; add it to CONTROL_ROOM_ALLOWED_ORIGINS"
            return problems.of_status(403, detail, code="foreign_origin")
        return None

    def _is_served(self, host: bytes) -> bool:
        if host_name(host.decode("latin-1")) not in self._hosts:
            return False
        # Clients spell a host in few ways; a stranger who invents ports must not fill the memory.
        if len(self._spelled) < _MOST_SPELLED:
            self._spelled.add(host)
        return True

    def _is_known(self, origin: str, host: str) -> bool:
        # With the port: on loopback another port is another site, such as a development server that an agent has
        # started.
        return origin in (f"http://{host}", f"https://{host}") or origin in self._origins


class TokenGuard:
    """Find out who asks, and refuse whom neither token nor key nor sign-in lets in, where there is one of them."""

    def __init__(
        self,
        issued: tickets.Tickets,
        sign_ins: browser_sessions.BrowserSessions,
        routes: Iterable[Any] = (),
    ) -> None:
        self._tickets = issued
        self._sign_ins = sign_ins
        self._credentials = sign_ins.credentials
        self._table = roles.Table(routes)

    def admitted(self, scope: Scope) -> tuple[Scope, problems.Problem | None]:
        """Return a request with its caller, a stream without its ticket; or why it is refused."""
        asked, ticket = (
            tickets.taken_out(scope) if scope["query_string"] and tickets.is_stream(scope) else (scope, None)
        )
        # A ticket is used up even where it is not needed, so that no one else can use it.
        issued_to = None if ticket is None else self._tickets.use(ticket)
        try:
            caller = self.still(issued_to) if issued_to is not None else self._caller(scope)
        except errors.Unauthenticated as error:
            return asked, refusals.problem(error)
        if caller is not None:
            asked[callers.CALLER] = caller
            return asked, None
        detail = _UNAUTHORIZED if ticket is None else _TICKET_REFUSED
        return asked, problems.of_status(401, detail, headers={"WWW-Authenticate": "Bearer"})

    async def refusal(self, services: Services | None, scope: Scope) -> problems.Problem | None:
        """Return why a caller may not ask this; None if it may."""
        caller: access.Caller = scope[callers.CALLER]
        # Without a key it is the token or a service that has none, which may do everything; or a stranger, who gets
        # only to addresses that are open.
        if caller.sha256 is None:
            return None
        found = self._table.needed(scope.get("method", "GET"), scope["path"])
        try:
            if found is not None:
                await scoping.check(services, caller, *found)
        except errors.ControlRoomError as error:
            return refusals.problem(error)
        return None

    def while_valid(self, scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
        """Return the ways to and from a client, which end when its key does not count any more."""
        caller: access.Caller = scope[callers.CALLER]
        if caller.sha256 is None:
            return receive, send

        # A stream can outlive its key by hours, so the key is looked at again with each message, either way.
        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive" and self.still(caller) is None:
                return {"type": "websocket.disconnect", "code": _POLICY}
            return message

        async def sending(message: Message) -> None:
            # An order that was taken is answered, also the one that has revoked the key.
            if self.still(caller) is not None or scope.get("method", "GET") != "GET":
                await send(message)
                return
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": _POLICY, "reason": "unauthorized"})
                raise WebSocketDisconnect(_POLICY)
            if message["type"] == "http.response.body":
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                await problems.of_status(401, _UNAUTHORIZED).response()(scope, receive, send)
            raise Ended

        return receiving, sending

    def still(self, caller: access.Caller) -> access.Caller | None:
        """Return a caller as its key lets it in now; None: the key does not count any more."""
        return caller if caller.sha256 is None else self._credentials.holder(caller.sha256)

    def _caller(self, scope: Scope) -> access.Caller | None:
        if not self._credentials.required:
            return access.ANYONE
        if scope["path"] in OPEN_PATHS or scope["path"].startswith(OPEN_PREFIX):
            return _STRANGER
        headers = Headers(scope=scope)
        for secret in filter(None, (_carried(headers), *_offered(scope))):
            if (found := self._credentials.bearer(secret)) is not None:
                return found
        return self._sign_ins.caller(scope)


async def refuse(problem: problems.Problem, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with a problem; a WebSocket does not open then."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": _POLICY, "reason": problem.code})
    else:
        await problem.response()(scope, receive, send)


def _carried(headers: Headers) -> str | None:
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None


def _offered(scope: Scope) -> Iterator[str]:
    # A page cannot set headers of a WebSocket, but it can name subprotocols.
    offered = scope["subprotocols"] if scope["type"] == "websocket" else ()
    for name in offered:
        if name.startswith(BEARER_PREFIX):
            encoded = name.removeprefix(BEARER_PREFIX)
            with contextlib.suppress(ValueError):
                yield base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()


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


def loggable(path: str) -> str:
    """Return a path as logs may hold it."""
    return path if not path.startswith(OPEN_PREFIX) else f"{'/'.join(path.split('/')[:3])}/***"


def address(scope: Scope) -> str:
    """Return the address that a request comes from."""
    return str((scope.get("client") or ("unknown",))[0])
