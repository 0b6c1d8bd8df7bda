"""Where the demo's service is; imports nothing that must be installed, so that `scripts/demo.py` can name it first."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"
PORT = 8000


def free_port(wanted: int) -> int:
    """Return the port if it is free, else another one."""
    with socket.socket() as probe:
        # A service that has just ended must not make its port look taken.
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
