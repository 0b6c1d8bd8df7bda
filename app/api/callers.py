"""Callers: who is admitted, by site, token, key, sign-in or ticket, and who is the author of an order or an answer."""

from __future__ import annotations

import base64
import contextlib
import hmac
import ipaddress
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from app import errors, settings
from app.api import key_watch, problems, refusals, roles
from app.api.use_cases import Services
from app.domain import access, authors, keys, plain

HEADER = "X-Control-Room-Author"  # Header in which a caller may name itself.
CALLER = "control_room.caller"  # Key of a connection's scope with the caller that the guard has admitted.
BODY = "control_room.body"  # Key with the value of the body, if there is one.
SIGN_IN_PATH = "/api/session"  # Address of the sign-in; it needs no token.

OPEN_PATHS = frozenset({"/healthz", "/readyz", SIGN_IN_PATH})
"""Answered without a token: they reveal no more than a port scan, or exchange the token for a sign-in."""

SOCKET_PATH = "/ws"  # Address of the WebSocket.
SUBPROTOCOL = "control-room"  # Subprotocol of the WebSocket, for clients that must name one.

BEARER_PREFIX = "control-room.bearer."
"""Prefix of the subprotocol with the token of a client that cannot set headers; the token follows in base64url."""

OPEN_PREFIX = "/hooks/"  # Prefix of the addresses that contain their own credential.

_BEARER = access.Caller(author=authors.Author(name=None, claimed=False, via="token"))
_CLAIMING = ("local", "token")
_UNAUTHORIZED = (
    "the header `Authorization: Bearer SECRET` is missing or wrong; SECRET is a key, or the token of the service, and"
    " commands send what CONTROL_ROOM_API_TOKEN contains"
)
_TICKET_REFUSED = "the ticket was used, has expired or is unknown; get another one with POST /api/tickets"
_HOST = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9_-][A-Za-z0-9._-]{0,253}))(?::(?P<port>[0-9]{0,5}))?"
)
_LARGEST_PORT = 65535
_USUAL_PORT = re.compile(r"(http://.*):80|(https://.*):443")
_STRANGER = access.Caller(role=access.Role.VIEWER)
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_MOST_SPELLED = 64
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared with, never listened on


class Keys(Protocol):
    """API keys."""

    @property
    def is_locked(self) -> bool:
        """Return whether a key exists or has existed."""

    def find(self, sha256: str) -> keys.Key | None:
        """Return the key of a secret, expired or not."""

    def caller(self, sha256: str) -> access.Caller | None:
        """Return the caller with the secret of a hash; None if the secret is not valid."""


class Tickets(Protocol):
    """Tickets of streams."""

    def without_ticket(self, scope: Scope) -> tuple[Scope, str | None]:
        """Return a request without its ticket, and the ticket of a stream.

        Raises:
            errors.RequestInvalid: it has several.
        """

    def use(self, ticket: str) -> access.Caller | None:
        """Return the caller who requested a ticket, and use the ticket up; None if it is not valid."""


class SignIns(Protocol):
    """Sign-ins of browsers."""

    credentials: Credentials  # Token and keys that a person can sign in with.

    def caller(self, scope: Scope) -> access.Caller | None:
        """Return the caller with the sign-in of a request; None if the request has no valid one."""


class Credentials:
    """The token of the service and its API keys."""

    def __init__(self, token: str | None, ring: Keys = keys.NONE) -> None:
        self.token = token.encode() if token else None
        """The token; None: the service has none."""
        self.ring = ring
        """The keys."""

    @property
    def required(self) -> bool:
        """Return whether requests need a token, a key or a sign-in."""
        return self.token is not None or self.ring.is_locked

    def bearer(self, given: str) -> access.Caller | None:
        """Return the caller with the token or with the secret of a key; None if it is neither.

        Raises:
            errors.Unauthenticated: `key_expired`.
        """
        secret = given.encode("utf-8", "replace")
        if self.token is not None and hmac.compare_digest(secret, self.token):
            return _BEARER
        # Keys are looked up by hash: the duration reveals nothing about a secret, and no file contains one.
        digest = plain.sha256(secret)
        key = self.ring.find(digest)
        if key is None:
            return None
        if (caller := self.ring.caller(digest)) is None:
            message = f"the key {key.name} expired at {key.expires_at}; ask an admin for another"
            raise errors.Unauthenticated(message, code="key_expired")
        return caller

    def holder(self, sha256: str) -> access.Caller | None:
        """Return the caller with a secret's hash; None if its key is not valid any more."""
        return self.ring.caller(sha256)


class SiteGuard:
    """Refuses an unknown `Host` and a foreign `Origin`."""

    def __init__(self, server: settings.ServerSettings) -> None:
        own = () if server.host in _WILDCARDS else (server.host,)
        named = (*_LOOPBACK_NAMES, *own, *server.allowed_hosts)
        self._hosts = frozenset(filter(None, (host_name(f"[{name}]") or host_name(name) for name in named)))
        self._origins = frozenset(allowed_origins(server))
        self._spelled: set[bytes] = set()

    def refusal(self, scope: Scope) -> problems.Problem | None:
        """Return why a request does not belong to this site; None if it does."""
        # DNS rebinding: a page of another site can point its own name to this address, and the browser then takes both
        # for one origin. It still sends that name as Host. Two Host headers are refused, since a proxy may use the
        # other one. The list of raw headers is read, since a mapping would show only one of two.
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
        # Clients write a host in few ways; a stranger who invents ports must not fill the memory.
        if len(self._spelled) < _MOST_SPELLED:
            self._spelled.add(host)
        return True

    def _is_known(self, origin: str, host: str) -> bool:
        # With the port: on loopback another port is another site, such as a development server that an agent has
        # started.
        return origin in (f"http://{host}", f"https://{host}") or origin in self._origins


class TokenGuard:
    """Identifies callers, and refuses those without a token, key or sign-in if the service has one of these.

    Args:
        routes: Returns the routes when they are loaded.
    """

    def __init__(
        self,
        issued: Tickets,
        sign_ins: SignIns,
        routes: Callable[[], Awaitable[Iterable[Any]]],
    ) -> None:
        self._tickets = issued
        self._sign_ins = sign_ins
        self._credentials = sign_ins.credentials
        self._routes = routes
        self._table: roles.Table | None = None

    def admitted(self, scope: Scope) -> tuple[Scope, problems.Problem | None]:
        """Return a request with its caller, without the ticket of a stream, or the reason for its refusal."""
        try:
            asked, ticket = self._tickets.without_ticket(scope) if scope["query_string"] else (scope, None)
            # A ticket is used up even if it is not needed, so that no one else can use it.
            issued_to = None if ticket is None else self._tickets.use(ticket)
            caller = self.still(issued_to) if issued_to is not None else self._caller(scope)
        except (errors.Unauthenticated, errors.RequestInvalid) as error:
            return scope, refusals.problem(error)
        if caller is not None:
            asked[CALLER] = caller
            return asked, None
        detail = _UNAUTHORIZED if ticket is None else _TICKET_REFUSED
        return asked, problems.unauthorized(detail)

    async def needed(self, method: str, path: str) -> tuple[roles.Need, Mapping[str, str]] | None:
        """Return the requirements of a request and the parameters of its path; None if the address does not exist."""
        if self._table is None:
            self._table = roles.Table(await self._routes())
        return self._table.needed(method, path)

    @contextlib.asynccontextmanager
    async def while_valid(self, scope: Scope, receive: Receive, send: Send) -> AsyncIterator[tuple[Receive, Send]]:
        """Provide the channels to and from a client, which end when the client's key becomes invalid."""
        caller: access.Caller = scope[CALLER]
        if caller.sha256 is None:
            yield receive, send
            return
        watched = key_watch.Connection(scope, receive, send, lambda: self.still(caller) is not None)
        try:
            yield watched.receive, watched.send
        finally:
            await watched.close()

    def still(self, caller: access.Caller) -> access.Caller | None:
        """Return a caller with the present rights of its key; None if the key is not valid any more."""
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


def caller_of(connection: HTTPConnection) -> access.Caller:
    """Return the caller of a request; for a stream that a ticket opened, the caller who requested the ticket."""
    caller: access.Caller = connection.scope[CALLER]
    return caller


def author_of(connection: HTTPConnection) -> authors.Author:
    """Return the author of a request; a caller without a name from a sign-in or key may claim one.

    Raises:
        errors.RequestInvalid: the claimed name is invalid, or there are several.
    """
    author, claimed = caller_of(connection).author, connection.headers.getlist(HEADER)
    if len(claimed) > 1:
        raise refusals.invalid([refusals.repeated(f"header.{HEADER}")])
    name = _name(claimed[0]) if claimed else None
    if name is None or author.name is not None or author.via not in _CLAIMING:
        return author
    return authors.Author(name=name, claimed=True, via=author.via)


async def run_of(services: Services, connection: HTTPConnection, named: str | None = None) -> str | None:
    """Return the run whose agent or command made a request; None if it is unknown or out of the caller's scope.

    Args:
        named: The parent that the request names; then the process is not looked up.
    """
    if named is not None:
        return None
    own, other = connection.scope.get("server"), connection.scope.get("client")
    if not (services.commands.under_way and own and other):
        return None
    run_id = await services.commands.run_behind((own[0], own[1]), (other[0], other[1]))
    limits = caller_of(connection).limits
    if run_id is None or limits is None or await services.runs.is_within(run_id, limits):
        return run_id
    return None


def is_name(text: str) -> bool:
    """Return whether a text can name a person: it is printable, and not too long."""
    return len(text) <= authors.MOST_CHARACTERS and text.isprintable()


def _name(claimed: str) -> str | None:
    # Headers arrive as Latin-1, no matter what their bytes mean.
    try:
        name = claimed.encode("latin-1").decode("utf-8").strip()
    except UnicodeError:
        name = "\0"
    if not is_name(name):
        message = f"{HEADER} is not a printable name in UTF-8 of at most {authors.MOST_CHARACTERS} characters"
        raise errors.RequestInvalid(message, flaws=[errors.Flaw(path=f"header.{HEADER}", message=message)])
    return name or None


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


def allowed_origins(server: settings.ServerSettings) -> list[str]:
    """Return the allowed origins as browsers spell them: in lower case, without a slash at the end and a usual port."""
    spelled = [origin.lower().rstrip("/") for origin in server.allowed_origins]
    return [found[1] or found[2] if (found := _USUAL_PORT.fullmatch(each)) else each for each in spelled]


def host_name(host: str) -> str | None:
    """Return the name or address in a `Host` header, in one spelling; None if it is malformed (RFC 9110, 7.2)."""
    match = _HOST.fullmatch(host)
    if match is None or int(match["port"] or 0) > _LARGEST_PORT:
        return None
    if match["name"] is not None:
        return match["name"].lower().removesuffix(".")
    try:
        bracketed = ipaddress.IPv6Address(match["address"])
    except ValueError:
        return None
    return str(bracketed.ipv4_mapped or bracketed)


def loggable(path: str) -> str:
    """Return a path in the form for logs."""
    return path if not path.startswith(OPEN_PREFIX) else f"{'/'.join(path.split('/')[:3])}/***"


def address(scope: Scope) -> str:
    """Return the address that a request comes from."""
    return str((scope.get("client") or ("unknown",))[0])
