"""Faults at the edge of the service: reported as errors that a caller can act on."""

from __future__ import annotations

import pytest

from app import errors
from app.services import faults


@pytest.mark.parametrize(
    ("raised", "told", "code"),
    [
        (errors.StorageFault("no space", detail={"file": "steps.jsonl"}), errors.WriteFailed, "no_room"),
        (errors.InterruptionFault(), errors.Unavailable, "stopping"),
        (errors.Conflict("the service is stopping", code="stopping"), errors.Unavailable, "stopping"),
        (errors.Conflict("another writes it", code="run_busy"), errors.Conflict, "run_busy"),
        (errors.WrongState("it is done"), errors.WrongState, "wrong_state"),
        (errors.NotFound("nobody", code="run_not_found"), errors.NotFound, "run_not_found"),
    ],
)
def test_a_fault_becomes_an_error_with_its_code(
    raised: BaseException, told: type[errors.ControlRoomError], code: str
) -> None:
    """A fault becomes an error with its code, and errors are unchanged."""
    with pytest.raises(told) as caught, faults.as_errors():
        raise raised

    assert type(caught.value) is told
    assert caught.value.code == code
