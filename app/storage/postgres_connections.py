"""How processes connect to Postgres, for the index and for the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping

# Keepalives find a machine that is gone only while nothing is under way. The kernel repeats a statement that is never
# acknowledged for a quarter of an hour, and the request behind it waits as long.
OPTIONS: Mapping[str, str | int] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 11_000,
    "application_name": "control-room",
}
"""Options of libpq: what a server does not acknowledge within 11 s is lost, and so is the connection."""


def options(given: Collection[str]) -> dict[str, str | int]:
    """Return the options for an address, of which those that it names itself count."""
    return {name: value for name, value in OPTIONS.items() if name not in given}
