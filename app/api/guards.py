"""Guards: which clients are admitted, by site, token and ticket."""

from __future__ import annotations

import base64
import hmac
import ipaddress
import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from app import settings
from app.api import authors, browser_sessions, problems, tickets

OPEN_PATHS = frozenset({"/healthz", "/readyz", browser_sessions.PATH})
"""Answered without a token: they tell nothing that a port scan would not, or exchange it for a sign-in."""

SUBPROTOCOL = "control-room"
"""Subprotocol of the WebSocket, for clients that have to name one."""

BEARER_PREFIX = "control-room.bearer."
"""Beginning of the subprotocol that carries the token of a client that can set no header, in base64url behind it."""

OPEN_PREFIX = "/hooks/"
"""Beginning of the addresses that hold their own credential."""

_UNAUTHORIZED = "the header `Authorization: Bearer TOKEN` is missing or wrong"
_TICKET_REFUSED = "the ticket was used, has expired or is unknown; get another one with POST /api/tickets"
_HOST = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9_-][A-Za-z0-9._-]{0,253}))(?::(?P<port>[0-9]{0,5}))?"
)
_LARGEST_PORT = 65535
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_MOST_SPELLED = 64
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared with, never listened on


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
        return origin in (f"http://{host}", f"https://{host}") or origin in self._origins


class TokenGuard:
    """Refuse a request without the bearer token or a browser's sign-in, where there is a token."""

    def __init__(
        self,
        token: str | None,
        issued: tickets.Tickets,
        sign_ins: browser_sessions.BrowserSessions,
        open_paths: Iterable[str] = OPEN_PATHS,
    ) -> None:
        self._tickets = issued
        self._sign_ins = sign_ins
        self._expected = token.encode() if token else None
        self._open_paths = frozenset(open_paths)

    def admitted(self, scope: Scope) -> tuple[Scope, problems.Problem | None]:
        """Return a request with the token, or a stream with a ticket, without the ticket; or why it is refused."""
        asked, ticket = (
            tickets.taken_out(scope) if scope["query_string"] and tickets.is_stream(scope) else (scope, None)
        )
        # A ticket is used up even where it is not needed, so that no one else can use it.
        author = None if ticket is None else self._tickets.use(ticket)
        if author is not None:
            return {**asked, authors.TICKETED: author}, None
        if self._expected is None or self._lets_in(self._expected, scope):
            return asked, None
        detail = _UNAUTHORIZED if ticket is None else _TICKET_REFUSED
        return asked, problems.of_status(401, detail, headers={"WWW-Authenticate": "Bearer"})

    def _lets_in(self, expected: bytes, scope: Scope) -> bool:
        if scope["path"] in self._open_paths or scope["path"].startswith(OPEN_PREFIX):
            return True
        if _carries(expected, Headers(scope=scope)) or _offers(expected, scope):
            return True
        return self._sign_ins.find(scope) is not None


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


def loggable(path: str) -> str:
    """Return a path as logs may hold it."""
    return path if not path.startswith(OPEN_PREFIX) else f"{'/'.join(path.split('/')[:3])}/***"


def address(scope: Scope) -> str:
    """Return the address that a request comes from."""
    return str((scope.get("client") or ("unknown",))[0])
