"""Connections of processes to Postgres, for the index and for the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping

# Keepalives detect a lost machine only while no statement is under way. The kernel repeats an unacknowledged statement
# for a quarter of an hour, and the request behind it waits as long.
OPTIONS: Mapping[str, str | int] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 11_000,
    "application_name": "control-room",
}
"""Options of libpq: a connection whose server does not acknowledge data within 11 s is lost."""


def options(given: Collection[str]) -> dict[str, str | int]:
    """Return the options for an address, except those that the address itself names."""
    return {name: value for name, value in OPTIONS.items() if name not in given}
