"""Tries: note on its step when a prompt waits between two tries of its service."""

# The packages of services repeat failed requests by themselves, and report neither the failure nor the wait.

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from app.engine import live_steps

_asking: ContextVar[live_steps.LiveStep | None] = ContextVar("_asking", default=None)

C = TypeVar("C")


@contextmanager
def noted(step: live_steps.LiveStep) -> Iterator[None]:
    """Note on a step, for the block, when its prompt waits for the next try."""
    token = _asking.set(step)
    try:
        yield
    finally:
        _asking.reset(token)
        step.between_tries = False


def noting(client: type[C]) -> type[C]:
    """Return a class of HTTP clients whose requests are noted as tries."""
    base: Any = client

    class Noting(base):  # type: ignore[misc]
        async def send(self, *request: Any, **options: Any) -> Any:
            step, is_answered = _asking.get(), False
            if step is not None:
                step.between_tries = False
            try:
                response = await super().send(*request, **options)
                is_answered = not response.is_error
                return response
            finally:
                if step is not None:
                    step.between_tries = not is_answered

    return Noting
