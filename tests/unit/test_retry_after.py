"""Retry-After: seconds or a date; any other value means no wait."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from app.domain import retry_after

NOW = datetime(2026, 2, 10, 14, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("reported", "seconds"),
    [
        ("20", 20.0),
        ("Tue, 10 Feb 2026 14:30:30 GMT", 30.0),
        ("inf", math.inf),
        ("nan", 0.0),
        ("-5", 0.0),
        ("Tue, 10 Feb 2026 14:29:30 GMT", 0.0),
        ("Tue, 10 Feb 2026 14:30:30", 0.0),
        ("Tue, 10 Feb 99999999999999999999 14:30:30 GMT", 0.0),
        ("soon", 0.0),
        ("", 0.0),
    ],
)
def test_an_invalid_retry_after_asks_for_no_wait(reported: str, seconds: float) -> None:
    """Only a number of seconds or a date in the future asks for a wait."""
    assert retry_after.seconds(reported, NOW) == seconds
