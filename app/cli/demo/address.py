"""The address of the demo's service; imports no installed package, so that `scripts/demo.py` can print it first."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"
PORT = 8000


def free_port(wanted: int) -> int:
    """Return the port if it is free, otherwise another one."""
    with socket.socket() as probe:
        # The port of a service that has just ended must not look occupied.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError:
            probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def of(port: int) -> str:
    """Return the address of a service at a port."""
    return f"http://{HOST}:{port}"
