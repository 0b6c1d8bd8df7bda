"""Ports of loopback that stay free for whoever a test gives them to."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"

_kept: list[socket.socket] = []


def free_port() -> int:
    """Return a port on which nobody else comes to listen, or connects from, while this process lives."""
    # A port that was bound and let go again may be another's before a server takes it. Kept bound, and not listened on,
    # it is refused to everybody but those who, as servers do, ask for the address once more.
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind((HOST, 0))
    _kept.append(keeper)
    port: int = keeper.getsockname()[1]
    return port
