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

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from app import clock
from app.api import connections, problems, refusals, request_models
from app.api.responses import as_json, declared
from app.domain import plain, shapes

LIFE = dt.timedelta(hours=12)
"""How long a sign-in counts."""

HEADER = "x-control-room-session"
"""Header that carries the second secret."""

PATH = "/api/session"
"""Address of the sign-in; it needs no token."""

_PURPOSE = b"control-room browser session 1"


class BrowserSessions:
    """Issue and check sign-ins; a restart keeps them, another token ends them all."""

    def __init__(self, token: str | None, time: clock.Clock, ids: clock.Ids) -> None:
        self._token = token.encode() if token else None
        self._key = hmac.digest(self._token, _PURPOSE, "sha256") if self._token else b""
        self._clock = time
        self._ids = ids

    @property
    def required(self) -> bool:
        """Return whether requests need a token or a sign-in."""
        return self._token is not None

    def is_token(self, given: str) -> bool:
        """Return whether a text is the token."""
        return self._token is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    def issue(self, name: str) -> tuple[str, str, str]:
        """Return the cookie's value, the header's value and the instant of expiry of a new sign-in.

        Args:
            name: How the person wants to be called.
        """
        now, header = self._clock.now(), self._ids.token(self._ids.token("bs_"))
        expires = clock.stamp(now + LIFE)
        content = {
            "name": name,
            "issued": clock.stamp(now),
            "expires": expires,
            "header": plain.sha256(header.encode()),
        }
        payload = base64.urlsafe_b64encode(plain.encode(content)).decode().rstrip("=")
        return f"{payload}.{self._signature(payload)}", header, expires

    def find(self, scope: Scope) -> dict[str, str] | None:
        """Return the sign-in that a request carries: `{name, issued, expires, header}`; None: no valid one."""
        headers = Headers(scope=scope)
        value, header = _cookie(headers.get("cookie", ""), cookie_name(scope)), headers.get(HEADER, "")
        payload, _, signature = value.partition(".")
        if not self._key or not hmac.compare_digest(signature.encode(), self._signature(payload).encode()):
            return None
        # Only what `issue` has encoded has a valid signature.
        content: dict[str, str] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if clock.instant(content["expires"]) <= self._clock.now():
            return None
        return content if hmac.compare_digest(plain.sha256(header.encode()), content["header"]) else None

    def _signature(self, payload: str) -> str:
        digest = hmac.digest(self._key, payload.encode("utf-8", "replace"), "sha256") if self._key else b""
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
    """A sign-in with the token."""

    model_config = request_models.strict({"token": "the token of the service", "name": "Ada"})

    token: Annotated[str, Field(max_length=4096, description="Token of the service.")]
    name: Annotated[str, Field(max_length=100, description="Your name, returned with the sign-in.")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession(shapes.Shape):
    """Whether this browser is signed in."""

    required: bool
    """Whether the service has a token, so that a sign-in is needed."""
    signed_in: bool
    """Whether this request carries a valid sign-in."""
    name: str | None
    """Name given at the sign-in."""
    expires_at: shapes.Instant | None
    """When it ends."""
    session: str | None = shapes.omitted()
    """Value of the header `X-Control-Room-Session`, only in the answer of a sign-in."""


router = APIRouter(prefix=PATH, tags=["service"])


@router.get("", summary="Show the sign-in", responses=declared(BrowserSession))
async def show_session(request: Request) -> Response:
    """Return whether the service needs a sign-in, and whether this browser has one. Needs no token."""
    sessions: BrowserSessions = request.app.state.browser_sessions
    found = sessions.find(request.scope)
    shown = BrowserSession(
        required=sessions.required,
        signed_in=found is not None,
        name=found["name"] if found else None,
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
    """Exchange the token for a cookie and a header, which count together for 12 hours.

    A service without a token needs no sign-in, and answers so.
    """
    sessions: BrowserSessions = request.app.state.browser_sessions
    if not sessions.required:
        return as_json(BrowserSession(required=False, signed_in=False, name=None, expires_at=None), status=201)
    if not sessions.is_token(body.token):
        warnings: connections.Warnings = request.app.state.warnings
        address = request.client.host if request.client else "unknown"
        warnings.tell("unauthorized", "a sign-in with a wrong token", address)
        return problems.of_status(401, "the token is wrong").response()
    value, header, expires = sessions.issue(body.name)
    shown = BrowserSession(required=True, signed_in=True, name=body.name, expires_at=expires, session=header)
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
