"""Authors of requests: who gives an order or an answer, by the way in which the request was let in."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header
from starlette.requests import HTTPConnection, Request

from app import errors
from app.api import browser_sessions
from app.domain import authors

HEADER = "X-Control-Room-Author"
"""Header in which a caller may give its name."""

TICKETED = "control_room.author"
"""Key of a connection's scope that holds the author of the ticket that let it in."""

_Name = Annotated[
    str | None,
    Header(
        alias=HEADER,
        description="Name of the person on whose behalf you ask, in UTF-8. It is recorded as claimed, with the order. "
        "A signed-in browser has the name of its sign-in.",
    ),
]


def author_of(connection: HTTPConnection) -> authors.Author:
    """Return the author of a request; of a stream that a ticket opened, that of the ticket.

    Raises:
        errors.RequestInvalid: the claimed name is not one.
    """
    issued_to: authors.Author | None = connection.scope.get(TICKETED)
    if issued_to is not None:
        return issued_to
    claimed = connection.headers.get(HEADER)
    name = None if claimed is None else _name(claimed)
    sessions: browser_sessions.BrowserSessions = connection.app.state.browser_sessions
    if not sessions.required:
        return authors.Author(name=name, claimed=name is not None, via="local")
    signed_in = sessions.find(connection.scope)
    if signed_in is not None:
        return authors.Author(name=signed_in["name"] or None, claimed=False, via="browser")
    return authors.Author(name=name, claimed=name is not None, via="token")


async def _author(request: Request, _claimed: _Name = None) -> authors.Author:
    return author_of(request)


AuthorDep = Annotated[authors.Author, Depends(_author)]
"""The author, as a dependency of routes."""


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
