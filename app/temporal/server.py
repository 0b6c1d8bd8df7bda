"""The Temporal server: connects to it, and reports what prevents a connection."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import re
import threading
from dataclasses import dataclass

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.runtime import LoggingConfig, LoggingFormat, Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode

from app import errors

CONNECT_SECONDS = 10.0  # Longest wait for an answer from the server.

_LAST_SECONDS = 0.2

# Levels of the library's own default, apart from the last part.
_LOGGED = (
    "ERROR,temporalio_common=WARN,temporalio_sdk_core=WARN,temporalio_client=WARN,temporalio_sdk=WARN,"
    "temporal_sdk_bridge=WARN,temporalio_client::retry=OFF"
)

_ADDRESS = re.compile(r"[A-Za-z0-9_.\-\[\]:]+:\d{1,5}")
_REASON = re.compile(r'(?:message|error): "([^"]+)"')
# Errors of the library for a server that does not speak gRPC; they differ from try to try.
_FOREIGN = ("h2 protocol", "http2 error", "broken pipe", "operation was canceled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A namespace on a server."""

    address: str  # `HOST:PORT`.
    namespace: str = "default"  # Namespace.


async def connect(target: Target, converter: DataConverter | None = None) -> Client:
    """Connect, and make sure that the namespace exists.

    Raises:
        errors.ConfigurationError: `temporal_address`, `temporal_away`, `temporal_namespace`.
    """
    if not _ADDRESS.fullmatch(target.address):
        raise _no_address(target)
    _write_logs()
    atexit.unregister(_let_threads_end)
    atexit.register(_let_threads_end)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            client = await Client.connect(
                target.address, namespace=target.namespace, data_converter=converter or DataConverter.default
            )
            # The connection alone does not show that the namespace exists.
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=target.namespace))
    except RPCError as error:
        raise _refused(target, error) from error
    except ValueError as error:
        raise _no_address(target) from error
    except (RuntimeError, TimeoutError, OSError) as error:
        raise _away(target, str(error).partition("\n")[0] or f"no answer in {CONNECT_SECONDS:g} s") from error
    return client


@functools.cache
def _write_logs() -> None:
    """Let the library write JSON lines, and none for each of its calls that a server which is away does not answer."""
    logging = LoggingConfig(filter=_LOGGED, format=LoggingFormat.JSON)
    # A process that has connected before keeps the runtime of its clients.
    with contextlib.suppress(RuntimeError):
        Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=logging)))


def _let_threads_end() -> None:
    # If a thread of the library still delivers an answer when the interpreter ends, it aborts the interpreter. The
    # library offers no way to wait for it.
    threading.Event().wait(_LAST_SECONDS)


def _no_address(target: Target) -> errors.ConfigurationError:
    message = f"{target.address!r:.120} is not an address of a Temporal server: write HOST:PORT"
    return errors.ConfigurationError(message, code="temporal_address")


def _refused(target: Target, error: RPCError) -> errors.ConfigurationError:
    if error.status is RPCStatusCode.NOT_FOUND:
        message = (
            f"the Temporal server at {target.address} has no namespace {target.namespace!r}; make it with: "
            f"temporal operator namespace create --namespace {target.namespace} --address {target.address}"
        )
        return errors.ConfigurationError(message, code="temporal_namespace")
    return _away(target, error.message)


def _away(target: Target, reason: str) -> errors.ConfigurationError:
    reasons = _REASON.findall(reason)
    # The library nests the reasons; the innermost is the most specific.
    found = reasons[-1] if reasons else reason
    if any(sign in found for sign in _FOREIGN):
        message = (
            f"what listens at {target.address} does not answer as a Temporal server does ({found:.200}): name the "
            "server's address, by default with port 7233, with --temporal or CONTROL_ROOM_TEMPORAL"
        )
        return errors.ConfigurationError(message, code="temporal_away")
    message = f"the Temporal server at {target.address} cannot be reached: {found:.200};"
    message += " start it, or name another one with --temporal or CONTROL_ROOM_TEMPORAL"
    return errors.ConfigurationError(message, code="temporal_away")
