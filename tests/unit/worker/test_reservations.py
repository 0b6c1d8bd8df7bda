"""The reason that a run parked by a limit shows."""

from __future__ import annotations

from typing import Any

import pytest

from app import clock
from app.domain.limits import RunLimits
from app.worker import reservations
from app.worker.accounts import Account, Need


@pytest.mark.parametrize(
    ("name", "amount", "written"),
    [
        ("calls", 1, "is 1 call, 1 call of it"),
        ("tokens", 1_234_567, "is 1,234,567 tokens, 1,234,567 tokens of it"),
        ("cost_usd", 0.035, "is $0.035, $0.035 of it"),
        ("cost_usd", 1234.5, "is $1,234.50, $1,234.50 of it"),
        ("cost_usd", 0.0000004, "is $0.0000004, $0.0000004 of it"),
    ],
)
def test_amounts_are_written_whole(name: str, amount: Any, written: str) -> None:
    """An amount of one is written in the singular, a million in digits, and a price as exactly as it was given."""
    account = Account.of_run("r", RunLimits(**{name: amount}))
    parked = reservations.exhausted("draft", account, name, Need(tokens=0, cost_usd=None), clock.FakeClock())

    assert f"the limit of run r {written} is left" in parked.error.message


def test_a_limit_of_nothing_is_not_used_up() -> None:
    """A limit of 0 is named as it is, without use that there cannot have been."""
    account = Account.of_run("r", RunLimits(calls=0))
    parked = reservations.exhausted("draft", account, "calls", Need(tokens=0, cost_usd=None), clock.FakeClock())

    assert "the limit of run r is 0 calls, and the call of the step 'draft' needs 1 call;" in parked.error.message
