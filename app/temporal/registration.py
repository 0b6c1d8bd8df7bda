"""Registration: registers the search attributes on the server, again whenever it has lost its database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from app import clock
from app.temporal import attributes

_TRIES = 60
_AGAIN_SECONDS = 0.5
_FRESH_SECONDS = 1.0
_CHECK_SECONDS = 2.0
_REST_SECONDS = 60.0
_PASSING = (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED)
_WANTED = {key.name: IndexedValueType.ValueType(int(key.indexed_value_type)) for key in attributes.KEYS}

_log = logging.getLogger(__name__)


class Registration:
    """Makes the search attributes of runs known to the server."""

    def __init__(self, client: Client, timer: clock.Clock) -> None:
        self._client = client
        self._clock = timer
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._checked_at = 0.0
        self._has_warned = False
        self.is_known = False
        """Whether the server knew the attributes at the last check."""

    async def keep(self) -> None:
        """Register the attributes now, and again whenever they are lost."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._checked_at, self.is_known = self._clock.monotonic(), await self.register()
            if self.is_known:
                await self._until_lost()
            else:
                # The server may be away for longer than one registration tries, or refuse the attributes.
                await self._clock.sleep(_REST_SECONDS)
                self._wanted.set()

    async def _until_lost(self) -> None:
        # A workflow that used them at the moment of the loss repeats its task until the server knows them again.
        while not self._wanted.is_set():
            await self._clock.sleep(_CHECK_SECONDS)
            with contextlib.suppress(RPCError):
                if await self._lacking():
                    self.is_known = False
                    self._wanted.set()

    async def are_known(self) -> bool:
        """Return whether the server knows the attributes now; a workflow task with an unknown one fails until then."""
        if not self.is_known or self._clock.monotonic() - self._checked_at < _FRESH_SECONDS:
            return self.is_known
        try:
            if await self._lacking():
                self.is_known = False
                self._wanted.set()
        except RPCError:
            return False
        self._checked_at = self._clock.monotonic()
        return self.is_known

    async def register(self) -> bool:
        """Register the attributes, and return whether the server knows them."""
        reason = "it does not list them"
        for _ in range(_TRIES):
            try:
                if await self._has():
                    self._has_warned = False
                    return True
            except RPCError as error:
                # A refusal for lack of permission does not pass.
                reason = error.message
                if error.status not in _PASSING:
                    break
            await self._clock.sleep(_AGAIN_SECONDS)
        _log.log(
            logging.INFO if self._has_warned else logging.WARNING,
            "runs are not found by search attributes, which the server does not take: %.200s; create them with: "
            "temporal operator search-attribute create --namespace %s %s",
            reason,
            self._client.namespace,
            " ".join(f"--name {key.name} --type {attributes.type_name(key)}" for key in attributes.KEYS),
        )
        self._has_warned = True
        return False

    async def _has(self) -> bool:
        lacking = await self._lacking()
        if lacking:
            adding = AddSearchAttributesRequest(namespace=self._client.namespace, search_attributes=lacking)
            await self._client.operator_service.add_search_attributes(adding)
            return False
        # The parts of a server learn of new attributes one after the other.
        await self._client.count_workflows(" AND ".join(f"{name} = 'none'" for name in _WANTED))
        return True

    async def _lacking(self) -> Mapping[str, IndexedValueType.ValueType]:
        listing = ListSearchAttributesRequest(namespace=self._client.namespace)
        known = (await self._client.operator_service.list_search_attributes(listing)).custom_attributes
        return {name: kind for name, kind in _WANTED.items() if known.get(name) != kind}
