"""Browser sessions: a signed cookie that counts together with a header, in place of the token."""

# A cookie goes to every port of a host, also to a development server that an agent has started. So it opens nothing
# alone: its hash of a second secret must match a header, which only a page of this origin can know and send.

from __future__ import annotations

import base64
import datetime as dt
import hmac
import json
from dataclasses import dataclass
from http import cookies
from typing import Annotated

from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from app import clock
from app.api import callers, connections, problems, refusals, request_models, routers
from app.api.responses import as_json, declared
from app.domain import access, authors, plain, shapes

LIFE = dt.timedelta(hours=12)  # How long a sign-in counts.
HEADER = "x-control-room-session"  # Header that carries the second secret.

_PURPOSE = b"control-room browser session 1"
_WRONG = (
    "this is neither the token of the service nor the secret of a key that counts; ask an admin, or add a key with "
    "`control-room keys add NAME --role admin` in the project's folder on the service's machine"
)


class BrowserSessions:
    """Issue and check sign-ins with the token or a key; another token ends them all, and a key its own.

    With a token a restart keeps them; without one they are signed with a secret of the process, and end with it.
    """

    def __init__(self, credentials: callers.Credentials, time: clock.Clock, ids: clock.Ids) -> None:
        self.credentials = credentials
        """The token and the keys with which one signs in."""
        secret = credentials.token or ids.token(ids.token(ids.token(""))).encode()
        self._key = hmac.digest(secret, _PURPOSE, "sha256")
        self._clock = time
        self._ids = ids

    def issue(self, name: str, sha256: str | None = None) -> tuple[str, str, str]:
        """Return the cookie's value, the header's value and the instant of expiry of a new sign-in.

        Args:
            name: How the person is called.
            sha256: Hash of the secret of the key that the person has; None: it is the token.
        """
        now, header = self._clock.now(), self._ids.token(self._ids.token("bs_"))
        key = None if sha256 is None else self.credentials.ring.find(sha256)
        expires = min(clock.stamp(now + LIFE), (key and key.expires_at) or "9999")
        content = {
            "name": name,
            "key": sha256,
            "issued": clock.stamp(now),
            "expires": expires,
            "header": plain.sha256(header.encode()),
        }
        payload = base64.urlsafe_b64encode(plain.encode(content)).decode().rstrip("=")
        return f"{payload}.{self._signature(payload)}", header, expires

    def caller(self, scope: Scope) -> access.Caller | None:
        """Return who asks with the sign-in that a request carries; None: there is no valid one."""
        found = self.find(scope)
        return None if found is None else self._signed_in(found)

    def find(self, scope: Scope) -> dict[str, str] | None:
        """Return the sign-in that a request carries: `{name, key, issued, expires, header}`; None: no valid one."""
        headers = Headers(scope=scope)
        value, header = _cookie(headers.get("cookie", ""), cookie_name(scope)), headers.get(HEADER, "")
        payload, _, signature = value.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(payload).encode()):
            return None
        # Only what `issue` has encoded has a valid signature.
        content: dict[str, str] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if clock.instant(content["expires"]) <= self._clock.now():
            return None
        if not hmac.compare_digest(plain.sha256(header.encode()), content["header"]):
            return None
        # Sign-ins of the release before name no key.
        return content if self._signed_in(content) is not None else None

    def _signed_in(self, content: dict[str, str]) -> access.Caller | None:
        if content.get("key"):
            return self.credentials.holder(content["key"])
        author = authors.Author(name=content["name"] or None, claimed=False, via="browser")
        return access.Caller(author=author) if self.credentials.token is not None else None

    def _signature(self, payload: str) -> str:
        digest = hmac.digest(self._key, payload.encode("utf-8", "replace"), "sha256")
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def cookie_name(scope: Scope) -> str:
    """Return the cookie's name, which contains the port: services on one host must not sign one another out."""
    server = scope.get("server") or ("", 0)
    return f"control-room-{server[1]}"


def _cookie(header: str, name: str) -> str:
    try:
        found = cookies.SimpleCookie(header).get(name)
    except cookies.CookieError:
        return ""
    return found.value if found is not None else ""


class SignInBody(BaseModel):
    """A sign-in with the token or a key."""

    model_config = request_models.strict({"token": "the token of the service", "name": "Ada"})

    token: Annotated[str, Field(max_length=4096, description="Token of the service, or secret of a key.")]
    name: Annotated[
        str, Field(max_length=100, description="Your name, returned with the sign-in; a key has its own.")
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession(shapes.Shape):
    """Whether this browser is signed in."""

    required: bool  # Whether the service has a token or keys, so that a sign-in is needed.
    signed_in: bool  # Whether this request carries a valid sign-in.
    name: str | None  # Name given at the sign-in, or that of the key.
    role: access.Role | None  # What this browser may do; null: nothing before a sign-in.
    expires_at: shapes.Instant | None  # When it ends.
    session: str | None = shapes.omitted()
    """Value of the header `X-Control-Room-Session`, only in the answer of a sign-in."""


router = routers.router(prefix=callers.SIGN_IN_PATH, tags=["service"])


@router.get("", summary="Show the sign-in", responses=declared(BrowserSession))
async def show_session(request: Request) -> Response:
    """Return whether the service needs a sign-in, and whether this browser has one. Needs no token."""
    sessions: BrowserSessions = request.app.state.browser_sessions
    found, caller = sessions.find(request.scope), sessions.caller(request.scope)
    shown = BrowserSession(
        required=sessions.credentials.required,
        signed_in=found is not None,
        name=found["name"] if found else None,
        role=caller.role if caller else None if sessions.credentials.required else access.Role.ADMIN,
        expires_at=found["expires"] if found else None,
    )
    return as_json(shown, headers={"Cache-Control": "no-store"})


@router.post(
    "",
    status_code=201,
    summary="Sign in",
    responses=declared(BrowserSession, *refusals.BODY, status=201, meaning="The sign-in."),
)
async def sign_in(request: Request, body: SignInBody) -> Response:
    """Exchange the token or the secret of a key for a cookie and a header, which count together for 12 hours.

    Those of a key count no longer than the key.

    A service without a token needs no sign-in, and answers so.
    """
    sessions: BrowserSessions = request.app.state.browser_sessions
    if not sessions.credentials.required:
        everything = BrowserSession(required=False, signed_in=False, name=None, role=access.Role.ADMIN, expires_at=None)
        return as_json(everything, status=201)
    caller = sessions.credentials.bearer(body.token)
    if caller is None:
        warnings: connections.Warnings = request.app.state.warnings
        address = request.client.host if request.client else "unknown"
        warnings.tell("unauthorized", "a sign-in with a wrong token", address)
        return problems.of_status(401, _WRONG).response()
    name = caller.author.name or body.name
    value, header, expires = sessions.issue(name, caller.sha256)
    shown = BrowserSession(
        required=True, signed_in=True, name=name, role=caller.role, expires_at=expires, session=header
    )
    response = as_json(shown, status=201, headers={"Cache-Control": "no-store"})
    _set_cookie(response, request, value, int(LIFE.total_seconds()))
    return response


@router.delete("", status_code=204, summary="Sign out", responses=declared(None, status=204, meaning="Signed out."))
async def sign_out(request: Request) -> Response:
    """Remove the cookie. Needs no token."""
    response = Response(status_code=204)
    _set_cookie(response, request, "", 0)
    return response


def _set_cookie(response: Response, request: Request, value: str, seconds: int) -> None:
    response.set_cookie(
        cookie_name(request.scope),
        value,
        max_age=seconds,
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
