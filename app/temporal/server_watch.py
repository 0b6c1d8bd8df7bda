"""The server watch: finds out for a service since when the Temporal server has not answered."""

from __future__ import annotations

import logging
from datetime import timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from app import clock
from app.engine import outages

CHECK_SECONDS = 5.0  # Time between two questions to the server.

_ANSWER = timedelta(seconds=5)

_log = logging.getLogger(__name__)


class ServerWatch:
    """Asks the server again and again."""

    def __init__(self, client: Client, time: clock.Clock) -> None:
        self._client = client
        self._clock = time
        self._outage = outages.Outage(
            _log,
            "the Temporal server does not answer: %s; orders are accepted, and no step starts until it does",
            "the Temporal server answers again",
        )
        self.away_since: str | None = None
        """Since when it has not answered; None while it does."""

    async def keep(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.check()
            await self._clock.sleep(CHECK_SECONDS)

    async def check(self) -> None:
        """Ask once."""
        asked_at, wanted = self._clock.now(), DescribeNamespaceRequest(namespace=self._client.namespace)
        try:
            await self._client.workflow_service.describe_namespace(wanted, timeout=_ANSWER)
        # A client that has never reached the server raises a RuntimeError.
        except (RPCError, RuntimeError) as error:
            self._outage.failed(error)
            self.away_since = self.away_since or clock.stamp(asked_at)
        else:
            self._outage.worked()
            self.away_since = None
