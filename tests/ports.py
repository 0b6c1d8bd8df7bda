"""Ports of loopback that stay free for the server that a test starts on them."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"

_kept: list[socket.socket] = []


def free_port() -> int:
    """Return a port on which no other process listens, or connects from, while this process lives."""
    # Another process may take a port that was bound and released before a server takes it. A port that stays bound
    # without a listener is refused to all processes except those that, as servers do, set SO_REUSEADDR.
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind((HOST, 0))
    _kept.append(keeper)
    port: int = keeper.getsockname()[1]
    return port
