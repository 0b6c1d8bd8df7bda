"""The roll of workers: which are there, and what they serve; Temporal keeps it, as pollers of one queue."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from app import clock
from app.domain import capabilities, operations
from app.temporal import messages

_LONGEST = 900
_EVERYTHING = "*"
_STALE = timedelta(seconds=75)
# A worker asks its queue again after a minute at the latest.


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One worker."""

    worker: str  # Identity of its data directory where runs are placed on workers; otherwise empty.
    serves: frozenset[str]  # Capabilities; `*`: everything, since there are too many to be listed.

    def written(self) -> str:
        """Return it as the identity of a poller."""
        text = f"{os.getpid()}@{socket.gethostname()} {self.worker or '-'} {','.join(sorted(self.serves))}"
        return text if len(text) <= _LONGEST else f"{text.rpartition(' ')[0]} {_EVERYTHING}"

    @classmethod
    def read(cls, identity: str) -> Entry | None:
        """Read what `written` wrote; None: something else did."""
        parts = identity.split(" ")
        if len(parts) != 3:
            return None
        return cls(worker=parts[1].removeprefix("-"), serves=frozenset(parts[2].split(",")))

    def does(self, capability: str) -> bool:
        """Return whether it performs steps of a capability."""
        return capability in self.serves or _EVERYTHING in self.serves


class Roll:
    """Say which capabilities no worker serves."""

    def __init__(self, client: Client, queue: str, time: clock.Clock, services: Collection[str]) -> None:
        """Args: queue: Task queue of the store. services: Backends that need no workspace."""
        self._client = client
        self._queue = queue
        self._clock = time
        self._services = services

    async def lacks(self, asked: Iterable[operations.Operation], placed: str | None) -> dict[str, str]:
        """Return why steps cannot be performed now, by capability; nothing about those that a worker serves.

        Args:
            placed: Worker that has the workspace of the run; None: any.
        """
        needed = {capabilities.needed(each): each for each in asked}
        if not needed:
            return {}
        try:
            present = await self._present()
        except RPCError as error:
            return dict.fromkeys(needed, f"the Temporal server does not answer: {error.message:.200}")
        found = {}
        for capability, operation in needed.items():
            here = None if capabilities.is_anywhere(operation, self._services) else placed
            if not any(entry.does(capability) and here in (None, entry.worker) for entry in present):
                where = f" on the machine of worker {here}" if here else ""
                found[capability] = f"no worker{where} serves {capability}"
        return found

    async def _present(self) -> list[Entry]:
        found = await self._client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=self._client.namespace,
                task_queue=TaskQueue(name=messages.workers_queue(self._queue)),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
            )
        )
        since = self._clock.now() - _STALE
        present = [one for one in found.pollers if one.last_access_time.ToDatetime(UTC) >= since]
        return [entry for one in present if (entry := Entry.read(one.identity)) is not None]
