"""The payload codec of workers and replays: replaces references to the store's lines by the lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.converter import DataConverter, PayloadCodec

from app import errors
from app.temporal.slices import DIFFERS, Contents, Slice

_ENCODING = "encoding"
_SLICE = b"control-room/slice"


class ClaimCheck(PayloadCodec):
    """Decodes references; outgoing payloads contain no content, so there is nothing to encode.

    A store that cannot be read, or that contains other lines, fails the workflow task and not the workflow: Temporal
    repeats the task.
    """

    def __init__(self, contents: Contents, differs: Callable[[str], object]) -> None:
        """Args:
        differs: Called with each run whose journal is not the one that its workflow knows.
        """
        self._contents = contents
        self._differs = differs

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return the payloads unchanged."""
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return the payloads with references replaced by their contents."""
        return [await self._decoded(payload) for payload in payloads]

    async def _decoded(self, payload: Payload) -> Payload:
        if payload.metadata.get(_ENCODING) != _SLICE:
            return payload
        try:
            content = await self._contents.content(Slice.read(payload.data))
        except errors.JournalCorrupt as corrupt:
            if corrupt.code == DIFFERS:
                self._differs(str(corrupt.detail["run_id"]))
            raise RuntimeError(corrupt.message) from corrupt
        except errors.Fault as fault:
            # A fault of a store must not end the worker.
            raise RuntimeError(fault.message) from fault
        return Payload(metadata={_ENCODING: b"binary/plain"}, data=content)


def reference(found: Slice) -> RawValue:
    """Return a reference in the form in which an activity returns it."""
    return RawValue(Payload(metadata={_ENCODING: _SLICE}, data=found.encoded()))


def converter(contents: Contents, differs: Callable[[str], object] = lambda run_id: None) -> DataConverter:
    """Return the data converter of a worker, or of a replay of its histories."""
    return DataConverter(payload_codec=ClaimCheck(contents, differs))
