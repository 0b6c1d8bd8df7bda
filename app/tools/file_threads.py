"""Threads for operations on files that only look: how many at a time, and how long each may take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from app.domain import operations
from app.tools import failures
from app.tools.threads import Threads

DEFAULT_TIMEOUT_SECONDS = 120.0
"""Wall-clock limit of one try where the operation sets none."""

AT_A_TIME = 4
"""Operations of a kind that are carried out at a time, over all runs."""

T = TypeVar("T")


class FileThreads:
    """Look at files off the loop; a look that is not waited for does no harm."""

    def __init__(self, at_a_time: int = AT_A_TIME) -> None:
        self._threads = Threads(at_a_time)

    async def look(self, operation: operations.Operation, work: Callable[[], T]) -> T:
        """Return what the work returns, within the time that the operation gives it.

        Raises:
            errors.ToolFailed: `timeout`, or what the work raises.
        """
        limit = operation.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
        try:
            async with asyncio.timeout(limit):
                return await self._threads.run(work)
        except TimeoutError as error:
            raise failures.overrun(f"The operation {operation.kind}", limit) from error
