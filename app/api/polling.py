"""Polling: the most frequent request, answered from cached bytes before any route is matched."""

# Polls are the most frequent request. Matching the route, solving dependencies and reading parameters took 140 of
# 168 microseconds, so polls are answered before the router. The route with the same address serves unusual forms,
# with the same function. A waiting poll of an active run takes at least 0.1 s, so that many small changes arrive in
# one response.

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.dependencies import Services
from app.services import run_reader

MOST_WAIT_SECONDS = 60
"""Longest that a poll is held back."""

_POLL = re.compile(r"/api/runs/([A-Za-z0-9_-]{1,64})")
_WAIT = re.compile(rb"wait=([0-9]{1,2}(\.[0-9]{1,6})?)")


@dataclass(frozen=True, slots=True)
class _Route:
    path: str = "/api/runs/{run_id}"


class Polls:
    """Answer polls; the route of the same address documents them, and answers those that are asked in another form."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._route = _Route()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a poll, and let everything else through."""
        poll = _polled(scope)
        services: Services | None = getattr(scope["app"].state, "services", None) if poll else None
        if poll is None or services is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = self._route
        (run_id, seconds), known = poll, _known(scope)
        found = await (services.runs.wait(run_id, seconds, known) if seconds else services.runs.ready(run_id))
        await answer(found, known)(scope, receive, send)


def answer(found: run_reader.Ready, known: frozenset[str]) -> Response:
    """Return a run's cached bytes, or 304 to a client that has them."""
    headers = {"etag": found.etag, "cache-control": "no-cache"}
    if found.etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers=headers, media_type="application/json")


def entity_tags(header: str | None) -> frozenset[str]:
    """Return the entity tags of an `If-None-Match`; weak ones count as strong."""
    if header is None:
        return frozenset()
    return frozenset(tag.strip().removeprefix("W/") for tag in header.split(","))


def _polled(scope: Scope) -> tuple[str, float] | None:
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    matched, seconds = _POLL.fullmatch(scope["path"]), _wait(scope["query_string"])
    return None if matched is None or seconds is None else (matched[1], seconds)


def _wait(query: bytes) -> float | None:
    matched = _WAIT.fullmatch(query)
    seconds = float(matched[1]) if matched else None if query else 0.0
    # Whatever else is asked for is the route's to refuse.
    return seconds if seconds is not None and seconds <= MOST_WAIT_SECONDS else None


def _known(scope: Scope) -> frozenset[str]:
    tags = [value.decode("latin-1") for name, value in scope["headers"] if name == b"if-none-match"]
    return entity_tags(",".join(tags)) if tags else frozenset()
