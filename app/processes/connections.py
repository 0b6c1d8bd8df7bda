"""Connections: which command holds the other end of a connection to this machine.

Read from /proc on Linux; elsewhere no command is found.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
from typing import TypeAlias

from app.processes import process_markers, process_tree

Address: TypeAlias = tuple[str, int]  # Address and port.

_TABLES = {4: ("/proc/net/tcp", "/proc/net/tcp6"), 6: ("/proc/net/tcp6",)}
_MAPPED = bytes(10) + b"\xff\xff"
_WORD_BYTES = 4
_LOCAL, _REMOTE, _INODE = 1, 2, 9


def marker_behind(own: Address, other: Address, series: int) -> int | None:
    """Return the marker of the command that holds the other end of a connection; None: no command of this series does.

    Args:
        own: This end.
        other: The other end.
        series: Number of the launcher whose commands are meant.
    """
    inode = _inode(other, own) if process_tree.LINUX else None
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    # The kernel does not say who holds a socket: the descriptors of each process are looked through.
    for name in filter(str.isdigit, os.listdir("/proc")):
        marker = process_markers.inherited(int(name))
        if marker is not None and process_markers.series_of(marker) == series and wanted in _files(name):
            return marker
    return None


def _inode(local: Address, remote: Address) -> str | None:
    """Return the inode of the socket between two addresses."""
    try:
        ends = [(_plain(host), port) for host, port in (local, remote)]
    except ValueError:
        return None
    version = ends[0][0].version
    for path in _TABLES[version]:
        # A socket of IPv6 may speak to an address of IPv4, at either end.
        prefix = _MAPPED if version == 4 and path.endswith("6") else b""
        wanted = [f"{_hexadecimal(prefix + address.packed)}:{port:04X}" for address, port in ends]
        try:
            with open(path, encoding="ascii") as table:
                rows = (line.split() for line in table)
                return next(row[_INODE] for row in rows if [row[_LOCAL], row[_REMOTE]] == wanted)
        except (OSError, StopIteration):
            # Without IPv6 its table is missing.
            continue
    return None


def _plain(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _hexadecimal(packed: bytes) -> str:
    # The kernel prints each word as the number that it is on this machine.
    words = (packed[at : at + _WORD_BYTES] for at in range(0, len(packed), _WORD_BYTES))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _files(pid: str) -> set[str]:
    """Return what the descriptors of a process lead to."""
    folder, found = f"/proc/{pid}/fd", set()
    # Its files, and the process itself, may be gone by now.
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"{folder}/{name}"))
    return found
