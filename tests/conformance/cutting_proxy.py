"""A proxy before a server that can cut a connection at the moment of its COMMIT.

The proxy can also vanish like a machine that loses its power: not even its kernel answers any more.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import threading
from typing import Literal

SO_ATTACH_FILTER = 26
DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)
"""A packet filter that drops every packet (`BPF_RET`, 0 bytes)."""

Cut = Literal["before", "after"]


class CuttingProxy:
    """Forward bytes between clients and a server on loopback."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._armed: Cut | None = None
        self._clients: list[socket.socket] = []
        self.cuts = 0
        """Number of connections that were cut."""
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, cut: Cut) -> None:
        """Cut the next connection that commits: before the server receives the COMMIT, or after it has executed it."""
        self._armed = cut

    def vanish(self) -> None:
        """Drop all further packets, so that data sent to the proxy is never acknowledged."""
        program = ctypes.create_string_buffer(DROP_ALL, len(DROP_ALL))
        described = struct.pack("HL", 1, ctypes.addressof(program))
        for each in (self._listening, *self._clients):
            each.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)

    def close(self) -> None:
        """Accept no more connections."""
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._clients.append(client)
                server = socket.create_connection(self._server)
                threading.Thread(target=self._up, args=(client, server), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        silent = threading.Event()
        down = threading.Thread(target=self._down, args=(server, client, silent), daemon=True)
        down.start()
        with contextlib.suppress(OSError):
            while content := client.recv(65536):
                if self._armed and b"COMMIT" in content:
                    cut, self._armed = self._armed, None
                    self.cuts += 1
                    if cut == "after":
                        silent.set()
                        server.sendall(content)
                        # The server's answer confirms the commit; the client never receives it.
                        down.join(10)
                    break
                server.sendall(content)
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    @staticmethod
    def _down(server: socket.socket, client: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while content := server.recv(65536):
                if silent.is_set():
                    return
                client.sendall(content)
