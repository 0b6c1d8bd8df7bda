"""
Interruptions: what becomes of a try whose process was cut off while the service went on.

It fares as if the service itself had been killed: the operation's `on_interrupted` decides.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from app import errors
from app.engine import ports, stepping, verdicts
from app.engine.records import Result

TRIES = 3
"""How often one try of a step is begun before its run is parked."""

_log = logging.getLogger(__name__)


async def outlived(
    call: ports.Call, lost: type[errors.ControlRoomError], perform: Callable[[int], Awaitable[Result]]
) -> Result:
    """
    Perform a try, and begin it again as long as it is cut off and may be repeated.

    Args:
        lost: Error that says that it was cut off, with nothing left of it.
        perform: Performs it; it is told how often it was cut off before.

    Raises:
        stepping.Parked: it must not be repeated unasked, or was cut off too often.
    """
    for times in range(TRIES):
        try:
            return await perform(times)
        except lost as interruption:
            if (refused := _unless_again(call, interruption)) is not None:
                return refused
    raise stepping.Parked("crash_loop", _cut_off(call, "crash_loop", "was cut off too often"))


def _unless_again(call: ports.Call, interruption: errors.ControlRoomError) -> Result | None:
    match call.operation.on_interrupted:
        case "fail":
            return verdicts.failed("interrupted", f"The step {call.key!r} was cut off and must not be repeated.")
        case "ask":
            raise stepping.Parked(
                "step_interrupted", _cut_off(call, "step_interrupted", "must not be repeated unasked")
            )
    facts = {"run_id": call.run.run_id, "key": call.key}
    _log.warning("a step was cut off and begins again: %s", interruption.detail, extra=facts)
    return None


def _cut_off(call: ports.Call, code: str, what: str) -> errors.StepError:
    message = f"the step {call.key!r} {what}; let the run continue to try again"
    return errors.StepError(message, code=code, key=call.key)
