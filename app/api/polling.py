"""Polling: a run's present answer as cached bytes, or 304 to a client that has it."""

# A waiting poll of an active run takes at least 0.1 s, so that many small changes arrive in one response.

from __future__ import annotations

from starlette.responses import Response

from app.api.use_cases import Services

MOST_WAIT_SECONDS = 60  # Longest wait of a poll.


async def shown(services: Services, run_id: str, seconds: float, known: frozenset[str]) -> Response:
    """Return a run's answer; with `seconds`, as soon as it differs from those that the client knows."""
    found = await (
        services.runs.polls.answer(run_id, seconds, known) if seconds else services.runs.reader.ready(run_id)
    )
    return unless_known(found.body, found.etag, known)


def unless_known(body: bytes, etag: str, known: frozenset[str]) -> Response:
    """Return an answer of JSON, or 304 to a client that already has it."""
    headers = {"etag": etag, "cache-control": "no-cache"}
    if etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def entity_tags(header: str | None) -> frozenset[str]:
    """Return the entity tags of an `If-None-Match` header; weak tags are treated as strong."""
    if header is None:
        return frozenset()
    return frozenset(tag.strip().removeprefix("W/") for tag in header.split(","))
