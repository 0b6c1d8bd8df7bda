"""Routes of the sign-in of browsers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from app.api import browser_sessions, callers, connections, problems, refusals, request_models, routers
from app.api.responses import as_json, declared
from app.domain import access, shapes

_WRONG = (
    "this is neither the token of the service nor the secret of a key that counts; ask an admin, or add a key with "
    "`control-room keys add NAME --role admin` in the project's folder on the service's machine"
)


def _printable(name: str) -> str:
    if not callers.is_name(name.strip()):
        raise ValueError("must be a printable name, in one line")
    return name.strip()


class SignInBody(BaseModel):
    """A sign-in with the token or a key."""

    model_config = request_models.strict({"token": "the token of the service", "name": "Ada"})

    token: Annotated[str, Field(max_length=4096, description="Token of the service, or secret of a key.")]
    name: Annotated[
        str,
        Field(max_length=100, description="Your name, returned with the sign-in; a key uses its own name."),
        AfterValidator(_printable),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession(shapes.Shape):
    """Whether this browser is signed in."""

    required: bool  # Whether the service has a token or keys, so that a sign-in is needed.
    signed_in: bool  # Whether this request has a valid sign-in.
    name: str | None  # Name given at the sign-in, or that of the key.
    role: access.Role | None  # Role of this browser; null: none before a sign-in.
    expires_at: shapes.Instant | None  # Time at which the sign-in ends.
    session: str | None = shapes.omitted()
    """Value of the header `X-Control-Room-Session`, only in the answer of a sign-in."""


router = routers.router(prefix=callers.SIGN_IN_PATH, tags=["service"])


@router.get("", summary="Show the sign-in", responses=declared(BrowserSession))
async def show_session(request: Request) -> Response:
    """Return whether the service needs a sign-in, and whether this browser has one. Needs no token."""
    sessions: browser_sessions.BrowserSessions = request.app.state.browser_sessions
    sign_in, caller = sessions.find(request.scope), sessions.caller(request.scope)
    shown = BrowserSession(
        required=sessions.credentials.required,
        signed_in=sign_in is not None,
        name=sign_in["name"] if sign_in else None,
        role=caller.role if caller else None if sessions.credentials.required else access.Role.ADMIN,
        expires_at=sign_in["expires"] if sign_in else None,
    )
    return as_json(shown, headers={"Cache-Control": "no-store"})


@router.post(
    "",
    status_code=201,
    summary="Sign in",
    responses=declared(BrowserSession, *refusals.BODY, status=201, meaning="The sign-in."),
)
async def sign_in(request: Request, body: SignInBody) -> Response:
    """Exchange the token or the secret of a key for a cookie and a header, which are valid together for 12 hours.

    Those of a key are valid no longer than the key.

    A service without a token needs no sign-in, and reports so.
    """
    sessions: browser_sessions.BrowserSessions = request.app.state.browser_sessions
    if not sessions.credentials.required:
        everything = BrowserSession(required=False, signed_in=False, name=None, role=access.Role.ADMIN, expires_at=None)
        return as_json(everything, status=201)
    caller = sessions.credentials.bearer(body.token)
    if caller is None:
        warnings: connections.Warnings = request.app.state.warnings
        address = request.client.host if request.client else "unknown"
        warnings.warn("unauthorized", "a sign-in with a wrong token", address)
        return problems.unauthorized(_WRONG).response()
    name = caller.author.name or body.name
    value, header, expires = sessions.issue(name, caller.sha256)
    shown = BrowserSession(
        required=True, signed_in=True, name=name, role=caller.role, expires_at=expires, session=header
    )
    response = as_json(shown, status=201, headers={"Cache-Control": "no-store"})
    _set_cookie(response, request, value, int(browser_sessions.LIFE.total_seconds()))
    return response


@router.delete("", status_code=204, summary="Sign out", responses=declared(None, status=204, meaning="Signed out."))
async def sign_out(request: Request) -> Response:
    """Remove the cookie. Needs no token."""
    response = Response(status_code=204)
    _set_cookie(response, request, "", 0)
    return response


def _set_cookie(response: Response, request: Request, value: str, seconds: int) -> None:
    response.set_cookie(
        browser_sessions.cookie_name(request.scope),
        value,
        max_age=seconds,
        path="/",
        httponly=True,
        samesite="strict",
        # TLS may end at a proxy, so the request came over HTTP. The browser's origin, which was checked, contains the
        # scheme.
        secure=request.headers.get("origin", "").startswith("https:"),
    )
