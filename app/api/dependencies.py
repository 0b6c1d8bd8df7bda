"""Dependencies of the routes: the use cases of the running service, and the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Header
from starlette.datastructures import State
from starlette.requests import Request

from app import errors
from app.api import callers
from app.api.use_cases import Services
from app.domain import access, authors

_Name = Annotated[
    str | None,
    Header(
        alias=callers.HEADER,
        description="Name of the person on whose behalf the request is sent, in UTF-8. It is recorded with the "
        "order as a claimed name. A signed-in browser uses the name of its sign-in, and a key uses "
        "its own name.",
    ),
]


async def found(request: Request) -> Services:
    """Return the use cases of the running service.

    Raises:
        errors.Unavailable, errors.Unreadable: the service has not started.
    """
    services: Services | None = getattr(request.app.state, "services", None)
    if services is None:
        raise why_starting(request.app.state)
    return services


def why_starting(state: State) -> errors.Unavailable | errors.Unreadable:
    """Return why a service without its use cases cannot answer yet."""
    why: Callable[[], errors.Unavailable | errors.Unreadable] | None = getattr(state, "why_starting", None)
    return why() if why is not None else errors.Unavailable("the service is starting", code="starting")


ServicesDep = Annotated[Services, Depends(found)]  # The use cases, as a dependency of routes.


async def _author(request: Request, _claimed: _Name = None) -> authors.Author:
    return callers.author_of(request)


async def _limits(request: Request) -> access.Scope | None:
    return callers.caller_of(request).limits


AuthorDep = Annotated[authors.Author, Depends(_author)]  # The author, as a dependency of routes.

LimitsDep = Annotated[access.Scope | None, Depends(_limits)]
"""Scope of the caller, as a dependency of routes; None: the caller is not limited."""
