"""The Temporal server: connects to it, and says what keeps that from working."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from app import clock, errors
from app.temporal import attributes

CONNECT_SECONDS = 10.0
"""Longest wait for an answer of the server."""

_TRIES = 60
_AGAIN_SECONDS = 0.5
_PASSING = (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED)

_log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"[A-Za-z0-9_.\-\[\]:]+:\d{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A namespace of a server."""

    address: str
    """`HOST:PORT`."""
    namespace: str = "default"
    """Namespace."""


async def connect(target: Target, converter: DataConverter | None = None) -> Client:
    """Connect, and make sure that the namespace is there.

    Raises:
        errors.ConfigurationError: `temporal_address`, `temporal_away`, `temporal_namespace`.
    """
    if not _ADDRESS.fullmatch(target.address):
        message = f"{target.address!r:.120} is not an address of a Temporal server: write HOST:PORT"
        raise errors.ConfigurationError(message, code="temporal_address")
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            client = await Client.connect(
                target.address, namespace=target.namespace, data_converter=converter or DataConverter.default
            )
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=target.namespace))
    except RPCError as error:
        raise _refused(target, error) from error
    except (RuntimeError, TimeoutError, OSError) as error:
        reason = str(error).partition("\n")[0] or f"no answer in {CONNECT_SECONDS:g} s"
        raise _away(target, reason) from error
    return client


async def register(client: Client, timer: clock.Clock) -> bool:
    """Make the server know the search attributes of runs, and return whether it does."""
    wanted = {key.name: IndexedValueType.ValueType(int(key.indexed_value_type)) for key in attributes.KEYS}
    reason = "it does not list them"
    for _ in range(_TRIES):
        try:
            if await _has(client, wanted):
                return True
        except RPCError as error:
            reason = error.message
            if error.status not in _PASSING:
                break
        await timer.sleep(_AGAIN_SECONDS)
    _log.warning(
        "runs are not found by search attributes, which the server does not take: %.200s; create them with: "
        "temporal operator search-attribute create --namespace %s %s",
        reason,
        client.namespace,
        " ".join(f"--name {key.name} --type {attributes.type_name(key)}" for key in attributes.KEYS),
    )
    return False


async def _has(client: Client, wanted: Mapping[str, IndexedValueType.ValueType]) -> bool:
    listing = ListSearchAttributesRequest(namespace=client.namespace)
    known = (await client.operator_service.list_search_attributes(listing)).custom_attributes
    lacking = {name: kind for name, kind in wanted.items() if known.get(name) != kind}
    if lacking:
        adding = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=lacking)
        await client.operator_service.add_search_attributes(adding)
        return False
    # The parts of a server learn of them one after the other.
    await client.count_workflows(" AND ".join(f"{name} = 'none'" for name in wanted))
    return True


def _refused(target: Target, error: RPCError) -> errors.ConfigurationError:
    if error.status is RPCStatusCode.NOT_FOUND:
        message = (
            f"the Temporal server at {target.address} has no namespace {target.namespace!r}; make it with: "
            f"temporal operator namespace create --namespace {target.namespace} --address {target.address}"
        )
        return errors.ConfigurationError(message, code="temporal_namespace")
    return _away(target, error.message)


def _away(target: Target, reason: str) -> errors.ConfigurationError:
    message = f"the Temporal server at {target.address} cannot be reached: {reason:.200}"
    return errors.ConfigurationError(message, code="temporal_away")
