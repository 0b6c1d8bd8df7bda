"""What ends a step, or the flow: raised where it happens, decided upon where the step began."""

from __future__ import annotations

from collections.abc import Sequence

from app import errors
from app.domain import plain, records


class StepFailed(errors.StepError):
    """A step failed, and its `on_error` says what follows."""

    def __init__(
        self,
        message: str,
        *,
        key: str,
        code: str,
        causes: Sequence[str] = (),
        detail: plain.Object | None = None,
        printed: str | None = None,
    ) -> None:
        super().__init__(message, code=code, key=key, detail=detail)
        self.printed = printed  # What a command had printed nevertheless.
        self.causes = tuple(causes) or (key,)  # Keys of the lines that a resume repeats.

    @classmethod
    def of(cls, record: records.Record, causes: Sequence[str] = (), printed: str | None = None) -> StepFailed:
        """Make the failure that a record tells."""
        error = record.error
        if error is None:
            return cls("the step failed", key=record.key, code="step_failed", causes=causes)
        return cls(error.message, key=record.key, code=error.code, causes=causes, detail=error.detail, printed=printed)

    def run_failed(self) -> errors.RunFailed:
        """Return the end of the run that it means."""
        message = f"step {self.key} failed: {self.message}"
        return errors.RunFailed(message, code=self.code, key=self.key, causes=self.causes, detail=self.detail)


class Remaining(errors.ControlRoomError):
    """A step failed whose `on_error` skips the remaining ones."""
