"""Outages: one line when they begin and one when they end."""

from __future__ import annotations

import logging

import pytest

from app.engine import outages


def test_an_outage_is_logged_once_when_it_begins_and_once_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    """Further failures are not logged, whatever their message; an error without a text is named by its type."""
    outage = outages.Outage(logging.getLogger("app.test"), "away: %s", "back")
    outage.worked()
    for error in (OSError("refused\n"), OSError("reset"), None, TimeoutError(), None, None):
        outage.worked() if error is None else outage.failed(error)

    assert caplog.messages == ["away: refused", "back", "away: TimeoutError()", "back"]
    assert not outage.is_on
