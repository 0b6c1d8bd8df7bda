"""The address of the demo's service; imports no installed package, so that `scripts/demo.py` can print it first."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"
PORT = 8000


def free_port(wanted: int) -> int:
    """Return the port if it is free, otherwise another one."""
    try:
        return take(wanted)
    except OSError:
        return take(0)


def take(wanted: int) -> int:
    """Return the port if it is free, and a free one for 0.

    Raises:
        OSError: the port is taken.
    """
    with socket.socket() as probe:
        # The port of a service that has just ended must not look occupied.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, wanted))
        port: int = probe.getsockname()[1]
        return port


def of(port: int) -> str:
    """Return the address of a service at a port."""
    return f"http://{HOST}:{port}"
