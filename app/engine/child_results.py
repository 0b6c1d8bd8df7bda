"""Child results: makes the result that the step of a parent records once its child has ended."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from app import errors
from app.domain import plain, records, states
from app.engine import dry_replay, ports, stores


async def result(
    store: stores.RunStore, drivers: Mapping[str, ports.Driver], child: str, status: states.RunState
) -> records.Result:
    """Return the result of a run that another run has started."""
    try:
        output = await _output(store, drivers, child, status)
    except errors.ControlRoomError as error:
        return failed(error.code, error.message, {"run_id": child, "status": status.value})
    if status is states.RunState.DONE:
        return records.Result(output=output, summary=f"{child} is done")
    return failed(f"child_{status.value}", f"the run {child} ended as {status.value}{_cause(output['error'])}", output)


def timed_out(child: str) -> records.Result:
    """Return the failure of a step whose child did not end in time."""
    return failed("timeout", f"the run {child} did not end in time and is cancelled", {"run_id": child})


def failed(code: str, message: str, output: plain.Json) -> records.Result:
    """Return the failure of a step that waited for a child."""
    error = records.StepError(code=code, message=message)
    return records.Result(status=states.StepState.FAILED, output=output, error=error)


def _cause(error: plain.Json) -> str:
    return f": {error['message']:.300}" if isinstance(error, dict) and error.get("message") else ""


async def _output(
    store: stores.RunStore, drivers: Mapping[str, ports.Driver], child: str, status: states.RunState
) -> dict[str, plain.Json]:
    loaded = await store.read(child)
    driver = drivers.get(loaded.start.dialect)
    view = await dry_replay.view_of(loaded, driver, partial(store.read_blob, child))
    return {
        "run_id": child,
        "status": status.value,
        "ending": dict(view.ending) if view.ending else None,
        "error": dict(view.error) if view.error else None,
        "slots": {
            name: slot.to_json() | ({} if slot.data is None else {"data": slot.data})
            for name, slot in view.board.slots.items()
        },
    }
