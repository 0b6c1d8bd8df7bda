"""Authors of requests: who gives an order or an answer, by the way in which the request was let in."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header
from starlette.requests import HTTPConnection, Request

from app import errors
from app.domain import access, authors

HEADER = "X-Control-Room-Author"  # Header in which a caller may give its name.
CALLER = "control_room.caller"  # Key of a connection's scope that holds who asks, as the guard has let it in.

_CLAIMING = ("local", "token")
_Name = Annotated[
    str | None,
    Header(
        alias=HEADER,
        description="Name of the person on whose behalf you ask, in UTF-8. It is recorded as claimed, with the order. "
        "A signed-in browser has the name of its sign-in, and a key its own.",
    ),
]


def caller_of(connection: HTTPConnection) -> access.Caller:
    """Return who asks; of a stream that a ticket opened, who asked for the ticket."""
    caller: access.Caller = connection.scope[CALLER]
    return caller


def author_of(connection: HTTPConnection) -> authors.Author:
    """Return the author of a request; one whom no sign-in and no key names may claim a name.

    Raises:
        errors.RequestInvalid: the claimed name is not one.
    """
    author, claimed = caller_of(connection).author, connection.headers.get(HEADER)
    name = None if claimed is None else _name(claimed)
    if name is None or author.name is not None or author.via not in _CLAIMING:
        return author
    return authors.Author(name=name, claimed=True, via=author.via)


async def _author(request: Request, _claimed: _Name = None) -> authors.Author:
    return author_of(request)


async def _limits(request: Request) -> access.Scope | None:
    return caller_of(request).limits


AuthorDep = Annotated[authors.Author, Depends(_author)]  # The author, as a dependency of routes.

LimitsDep = Annotated[access.Scope | None, Depends(_limits)]
"""The scope that the caller is limited to, as a dependency of routes; None: it is not limited."""


def _name(claimed: str) -> str | None:
    # Headers arrive as Latin-1, whatever their bytes mean.
    try:
        name = claimed.encode("latin-1").decode("utf-8").strip()
    except UnicodeError:
        name = "\0"
    if len(name) > authors.MOST_CHARACTERS or not name.isprintable():
        message = f"{HEADER} is not a printable name in UTF-8 of at most {authors.MOST_CHARACTERS} characters"
        raise errors.RequestInvalid(message, flaws=[errors.Flaw(path=f"header.{HEADER}", message=message)])
    return name or None
