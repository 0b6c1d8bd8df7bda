"""Perform `wait_for_files`: files that somebody else puts into the workspace."""

from __future__ import annotations

from dataclasses import dataclass

from app import clock
from app.domain import file_operations, plain, records, states
from app.engine import ports
from app.tools import globs, threads
from app.tools.reserved import Root
from app.tools.threads import Threads
from app.tools.workspace import Workspaces

SHORTEST_POLL_SECONDS = 0.01  # Time between two looks, however little an operation asks for.
_TICK_SECONDS = 0.001


class WaitForFilesPerformer:
    """Look again and again until there are enough files, or the time has ended.

    Between two looks nothing is held but the wait itself.
    """

    def __init__(self, workspaces: Workspaces, time: clock.Clock) -> None:
        self._workspaces = workspaces
        self._clock = time
        self._threads = Threads(threads.AT_A_TIME)

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of a `file_operations.WaitForFiles`: look at once, at every poll, and when the time is over.

        The output of a try that fails with `timeout` is complete. Time and polls are counted from the last start of the
        process: while it was down, nobody could look.

        Raises:
            errors.ToolFailed: as `globs.fitting`.
        """
        operation = call.operation
        assert isinstance(operation, file_operations.WaitForFiles)
        root = self._workspaces.of(call.run).place
        span = _Span(begun=self._clock.monotonic(), seconds=operation.timeout_seconds or float("inf"))
        pause = max(operation.poll_ms / 1000, SHORTEST_POLL_SECONDS)
        polls = 0
        while True:
            is_last = span.left_seconds(self._clock) <= 0
            files = await self._threads.run(lambda: _found(root, operation))
            polls += 1
            if is_last or len(files) >= operation.min_count:
                return _result(operation, files, span.waited_ms(self._clock), polls)
            # A timer may be over a moment early, and what is left then must not make for a look after the other.
            await self._clock.sleep(min(pause, max(span.left_seconds(self._clock), _TICK_SECONDS)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    begun: float
    seconds: float

    def left_seconds(self, time: clock.Clock) -> float:
        return self.seconds - (time.monotonic() - self.begun)

    def waited_ms(self, time: clock.Clock) -> int:
        return round((time.monotonic() - self.begun) * 1000)


def _found(root: Root, wanted: file_operations.WaitForFiles) -> list[str]:
    found = globs.fitting(root, wanted.literal) if wanted.literal is not None else []
    return found if len(found) >= wanted.min_count else globs.fitting(root, wanted.pattern)


def _result(operation: file_operations.WaitForFiles, files: list[str], waited_ms: int, polls: int) -> records.Result:
    timed_out = len(files) < operation.min_count
    output = {"files": files, "wait_duration_ms": waited_ms, "poll_count": polls, "timed_out": timed_out}
    if not timed_out:
        return records.Result(output=output, summary=plain.preview(", ".join(files)))
    limit = operation.timeout_seconds or 0
    message = f"{len(files)} of {operation.min_count} files for {operation.pattern!r:.200} after {limit:g} seconds."
    error = records.StepError(code="timeout", message=message, detail={"timeout_seconds": limit})
    return records.Result(status=states.StepState.FAILED, output=output, summary=plain.preview(message), error=error)
