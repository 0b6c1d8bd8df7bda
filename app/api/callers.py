"""Callers: who asks, by the token of the service or an API key, and who is the author of an order or an answer."""

from __future__ import annotations

import hmac
from typing import Annotated, Protocol

from fastapi import Depends, Header
from starlette.requests import HTTPConnection, Request

from app import errors
from app.api.dependencies import Services
from app.domain import access, authors, keys, plain

HEADER = "X-Control-Room-Author"  # Header in which a caller may give its name.
CALLER = "control_room.caller"  # Key of a connection's scope that holds who asks, as the guard has let it in.

_BEARER = access.Caller(author=authors.Author(name=None, claimed=False, via="token"))
_CLAIMING = ("local", "token")
_Name = Annotated[
    str | None,
    Header(
        alias=HEADER,
        description="Name of the person on whose behalf you ask, in UTF-8. It is recorded as claimed, with the order. "
        "A signed-in browser has the name of its sign-in, and a key its own.",
    ),
]


class Keys(Protocol):
    """API keys."""

    @property
    def is_locked(self) -> bool:
        """Return whether there is, or was, a key."""

    def find(self, sha256: str) -> keys.Key | None:
        """Return the key of a secret, expired or not."""

    def caller(self, sha256: str) -> access.Caller | None:
        """Return who asks with a secret, while it counts."""


class Credentials:
    """The token of the service and its API keys."""

    def __init__(self, token: str | None, ring: Keys = keys.NONE) -> None:
        self.token = token.encode() if token else None
        """The token; None: there is none."""
        self.ring = ring
        """The keys."""

    @property
    def required(self) -> bool:
        """Return whether requests need a token, a key or a sign-in."""
        return self.token is not None or self.ring.is_locked

    def bearer(self, given: str) -> access.Caller | None:
        """Return who asks with the token or with the secret of a key; None: it is neither.

        Raises:
            errors.Unauthenticated: `key_expired`.
        """
        secret = given.encode("utf-8", "replace")
        if self.token is not None and hmac.compare_digest(secret, self.token):
            return _BEARER
        # Keys are looked up by hash: the time that this takes reveals nothing about a secret, and no file holds one.
        digest = plain.sha256(secret)
        key = self.ring.find(digest)
        if key is None:
            return None
        if (caller := self.ring.caller(digest)) is None:
            message = f"the key {key.name} expired at {key.expires_at}; ask an admin for another"
            raise errors.Unauthenticated(message, code="key_expired")
        return caller

    def holder(self, sha256: str) -> access.Caller | None:
        """Return who asks with the secret of a hash; None: its key does not count any more."""
        return self.ring.caller(sha256)


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


async def run_of(services: Services, connection: HTTPConnection) -> str | None:
    """Return the run whose agent or command has made a request; None: none of this process has, or it is out of the
    caller's scope.
    """
    own, other = connection.scope.get("server"), connection.scope.get("client")
    if not (services.commands.under_way and own and other):
        return None
    run_id = await services.commands.run_behind((own[0], own[1]), (other[0], other[1]))
    limits = caller_of(connection).limits
    if run_id is None or limits is None or await services.runs.is_within(run_id, limits):
        return run_id
    return None


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
