"""Silence: end silent prompts of backends that cannot do so themselves."""

# Why a limit has no default: docs/decisions/0374.

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app import errors
from app.engine import agent_ports, aio

_LOOK_SECONDS = 1.0

T = TypeVar("T")


async def ended(
    backend: agent_ports.AgentBackend, prompt: agent_ports.AgentPrompt, idle_seconds: float, waits: Callable[[], bool]
) -> agent_ports.AgentReply:
    """Send a prompt, and cancel it after too long a silence.

    Waiting is not silence: for the backend's queue, for the end of a pause that the service wants, for the next try,
    for disk space.

    Args:
        waits: Returns whether the service wants no prompt at present.

    Raises:
        errors.AgentFailed: `agent_idle`, or what the backend raises.
    """
    active_at, storing = _now(), 0

    def hear(text: str) -> None:
        nonlocal active_at
        active_at = _now()
        prompt.hear(text)

    async def store(write: Callable[[], Awaitable[T]]) -> T:
        nonlocal storing
        storing += 1
        try:
            return await prompt.retry_until_space(write)
        finally:
            storing -= 1

    watched = dataclasses.replace(prompt, hear=hear, retry_until_space=store)
    asking = asyncio.ensure_future(backend.prompt(watched))
    try:
        while not asking.done():
            # Waiting for the disk, for a place, for the next try or for the end of a backend's pause is not silence.
            if storing or prompt.live.queue is not None or prompt.live.between_tries or waits():
                active_at = _now()
            left = active_at + idle_seconds - _now()
            if left <= 0:
                raise _idle(backend, idle_seconds)
            # Short waits: each output moves the limit, and a pause may end at any time.
            await asyncio.wait((asking,), timeout=min(left, idle_seconds / 4, _LOOK_SECONDS))
        return asking.result()
    finally:
        await aio.end(asking)


def _idle(backend: agent_ports.AgentBackend, idle_seconds: float) -> errors.AgentFailed:
    return errors.AgentFailed(
        f"The backend {backend.get_name()} wrote nothing for {idle_seconds:g} seconds.",
        code="agent_idle",
        detail={"idle_seconds": idle_seconds},
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
