"""Routes of keys."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Body, Path
from pydantic import BaseModel, BeforeValidator, Field
from starlette.responses import Response

from app import clock
from app.api import refusals, request_flaws, request_models, routers
from app.api.dependencies import AuthorDep, ServicesDep
from app.api.responses import as_json, declared
from app.domain import access, keys
from app.services import keys as key_requests

router = routers.router(prefix="/api/keys", tags=["keys"])

KeyName = Annotated[str, Path(description="Name of the key.", examples=["ada"], pattern=keys.NAME_PATTERN)]
"""A key's name in a path."""

_Recipe = Annotated[str, Field(pattern=f"^{keys.RECIPE_PATTERN}$")]
_Label = Annotated[str, BeforeValidator(request_models.label_text), Field(pattern=request_flaws.KEY_LABEL_PATTERN)]
_Instant = Annotated[str, BeforeValidator(lambda text: clock.stamp(clock.instant(str(text))))]
_FILE = ("file_damaged", "file_unreadable")
_ONCE = {"Cache-Control": "no-store"}


class KeyBody(BaseModel):
    """A key to add."""

    model_config = request_models.strict(
        {"name": "ada", "role": "approver", "labels": ["book:one"], "expires_at": "2027-02-10T00:00:00Z"}
    )

    name: Annotated[str, Field(pattern=keys.NAME_PATTERN, description="Name of the key's holder.")]
    role: access.Role = Field(
        access.Role.VIEWER, strict=False, description="Role of the key; each role includes the roles before it."
    )
    recipes: Annotated[list[_Recipe], Field(max_length=keys.MOST_NAMED)] = Field(
        [], description="Recipes whose runs the key can access; an empty list allows all."
    )
    labels: Annotated[list[_Label], Field(max_length=keys.MOST_NAMED)] = Field(
        [],
        description="Labels, `name:value`, of the runs that the key can access: one of the values for each "
        "name. An empty list allows all.",
    )
    expires_at: _Instant | None = Field(None, description="When the key expires; by default never.")

    def key(self) -> key_requests.NewKey:
        """Return the requested key."""
        given = {name: tuple(getattr(self, name)) for name in ("recipes", "labels")}
        return key_requests.NewKey(name=self.name, role=self.role, expires_at=self.expires_at, **given)


class RotateBody(BaseModel):
    """A rotation."""

    model_config = request_models.strict({"grace_seconds": 3600})

    grace_seconds: Annotated[int, Field(ge=0, le=key_requests.LONGEST_GRACE_SECONDS)] = Field(
        0, description="How long the previous secret remains valid, in seconds."
    )


@router.get("", summary="List keys", responses=declared(list[keys.KeyShown], *_FILE, meaning="All keys, by name."))
async def list_keys(services: ServicesDep) -> Response:
    """List the keys with their roles, scopes and expiry times; secrets are never shown again."""
    found = await asyncio.to_thread(services.keys.list)
    return as_json([key.to_json() for key in found])


@router.post(
    "",
    status_code=201,
    summary="Add a key",
    responses=declared(
        key_requests.KeyIssued,
        *refusals.WRITE,
        "key_exists",
        "too_many_keys",
        "admin_key_needed",
        *_FILE,
        status=201,
        meaning="The key with its secret, which is shown only once.",
    ),
)
async def add_key(services: ServicesDep, body: KeyBody, author: AuthorDep) -> Response:
    """Add a key, valid at once; the first key closes a service that was open on loopback.

    Without a token, the first key must be an admin's, without limits.
    """
    return as_json(await services.keys.add(body.key(), author), status=201, headers=_ONCE)


@router.delete(
    "/{name}",
    status_code=204,
    summary="Revoke a key",
    responses=refusals.documented(("key_not_found", "last_admin_key", "no_room", *_FILE)),
)
async def revoke_key(services: ServicesDep, name: KeyName, author: AuthorDep) -> Response:
    """Remove a key. Its requests, sign-ins and streams end within a second.

    A service without a token keeps the last key of an admin without limits.
    """
    await services.keys.revoke(name, author)
    return Response(status_code=204)


@router.post(
    "/{name}/rotate",
    summary="Rotate a key",
    responses=declared(
        key_requests.KeyIssued,
        *refusals.WRITE,
        "key_not_found",
        *_FILE,
        meaning="The key with its new secret, which is shown only once.",
    ),
)
async def rotate_key(
    services: ServicesDep, name: KeyName, author: AuthorDep, body: Annotated[RotateBody | None, Body()] = None
) -> Response:
    """Give a key a new secret. The previous one remains valid for `grace_seconds`, by default not at all."""
    grace_seconds = 0 if body is None else body.grace_seconds
    return as_json(await services.keys.rotate(name, author, grace_seconds), headers=_ONCE)
