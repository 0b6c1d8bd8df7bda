"""Disk health: an outage of writes is logged when it begins and when it ends."""

from __future__ import annotations

import errno

import pytest

from app.storage.disk import disk_health, disk_port


def test_repeated_failures_of_writes_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Further failures until a write succeeds are not logged, whatever file they concern; a lost lease always is."""
    health, full = disk_health.DiskHealth(), OSError(errno.ENOSPC, "full")
    health.succeeded()
    for _ in range(2):
        health.failed("a", full)
        health.failed("b", full)
        health.failed("c", disk_port.LeaseLost("lost"))
        assert not health.free
        health.succeeded()

    logged = [(line.message, line.__dict__.get("file")) for line in caplog.records]
    assert logged == 2 * [("a write failed", "a"), ("a write failed", "c"), ("writes succeed again", None)]
