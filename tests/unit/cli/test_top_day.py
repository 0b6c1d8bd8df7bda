"""The day of `control-room top` begins at local midnight, also on days of clock changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from app.cli.top import feeds


@pytest.fixture(autouse=True)
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("now", "midnight"),
    [
        ("2026-02-10T23:30Z", "2026-02-10T23:00Z"),
        # Days of 23 and 25 hours.
        ("2026-03-29T12:00Z", "2026-03-28T23:00Z"),
        ("2026-10-25T12:00Z", "2026-10-24T22:00Z"),
    ],
)
def test_today_begins_at_local_midnight(now: str, midnight: str) -> None:
    """Midnight has its own UTC offset, which may differ from the present one."""
    assert feeds.local_midnight(datetime.fromisoformat(now)) == datetime.fromisoformat(midnight)
