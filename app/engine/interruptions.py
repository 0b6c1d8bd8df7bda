"""Interruptions: a try whose process was cut off while the service went on."""

from __future__ import annotations

from app import errors


class Interrupted(BaseException):
    """The try was cut off, and nothing of it is left: it fares as if the service itself had been killed."""

    def __init__(self, cause: errors.ControlRoomError) -> None:
        super().__init__(cause.message)
        self.cause = cause
