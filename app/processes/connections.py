"""Connections: find the command at the other end of a connection to this machine.

This uses /proc on Linux; on other systems no command is found.
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
    """Return the marker of the command at the other end of a connection; None if no command of this series holds it.

    Args:
        own: Address of this end.
        other: Address of the other end.
        series: Number of the launcher whose commands are searched.
    """
    inode = _inode(other, own) if process_tree.LINUX else None
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    # The kernel does not report who holds a socket: the descriptors of each process have to be searched.
    for name in filter(str.isdigit, os.listdir("/proc")):
        marker = process_markers.inherited(int(name))
        if marker is not None and process_markers.series_of(marker) == series and wanted in files_of(name):
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
        # At either end, an IPv6 socket may be connected to an IPv4 address.
        prefix = _MAPPED if version == 4 and path.endswith("6") else b""
        wanted = [f"{_hexadecimal(prefix + address.packed)}:{port:04X}" for address, port in ends]
        try:
            with open(path, encoding="ascii") as table:
                rows = (line.split() for line in table)
                return next(row[_INODE] for row in rows if [row[_LOCAL], row[_REMOTE]] == wanted)
        except (OSError, StopIteration):
            # On a system without IPv6, its table does not exist.
            continue
    return None


def _plain(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _hexadecimal(packed: bytes) -> str:
    # The kernel prints each word as a number in the byte order of this machine.
    words = (packed[at : at + _WORD_BYTES] for at in range(0, len(packed), _WORD_BYTES))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def files_of(pid: str) -> set[str]:
    """Return the targets of the descriptors of a process."""
    folder, found = f"/proc/{pid}/fd", set()
    # The files, and the process itself, may be gone by now.
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"{folder}/{name}"))
    return found
