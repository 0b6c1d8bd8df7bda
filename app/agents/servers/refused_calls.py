"""Refused calls: how long a service asks its callers to wait, and who is notified."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from app import clock
from app.domain import retry_after

TOO_MANY = 429  # Status of a request that was sent too soon.

_USUAL_SECONDS = 1.0


def asked_wait_seconds(headers: Mapping[str, str], time: clock.Clock) -> float:
    """Return the seconds that `Retry-After` asks for; 0 if it asks for none."""
    return retry_after.seconds(headers.get("retry-after", ""), time.now())


def hook(limited: Callable[[str | None, float], None], time: clock.Clock) -> Callable[[Any], Awaitable[None]]:
    """Return a hook that examines each response of a client, and reports requests that were sent too soon."""

    async def hear(response: Any) -> None:
        if response.status_code == TOO_MANY:
            limited(_model(response.request.content), asked_wait_seconds(response.headers, time) or _USUAL_SECONDS)

    return hear


def _model(content: bytes) -> str | None:
    body = json.loads(content)
    model = body.get("model") if isinstance(body, dict) else None
    return model if isinstance(model, str) else None
