"""A network namespace that has only loopback, so that a program under test reaches no other machine."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_SET_FLAGS = 0x8914
_IS_UP = 0x1
_OWN = "/proc/thread-self/ns/net"


@contextlib.contextmanager
def alone() -> Iterator[str | None]:
    """Let this thread, and the processes that it starts, see only loopback.

    Yields None, or the reason why that is not possible.
    """
    if is_alone():
        yield None
        return
    reason, before = _leave()
    if reason is not None:
        warnings.warn(f"what is tested here can see the machine's network: {reason}", stacklevel=3)
    try:
        yield reason
    finally:
        if before is not None:
            _call("setns", before, _CLONE_NEWNET)
            os.close(before)


def is_alone() -> bool:
    """Return whether loopback is the only network."""
    try:
        lines = Path("/proc/thread-self/net/dev").read_text(encoding="ascii").splitlines()[2:]
    except OSError:
        return False
    return [line.partition(":")[0].strip() for line in lines] == ["lo"] and _is_up()


def _is_up() -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", 0))
            probe.listen()
            with socket.create_connection(probe.getsockname(), 1):
                return True
        except OSError:
            return False


def _leave() -> tuple[str | None, int | None]:
    try:
        before = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return f"this system has no network namespaces ({error.strerror})", None
    try:
        _call("unshare", _CLONE_NEWNET)
    except OSError as error:
        os.close(before)
        return f"no network namespace may be made ({error.strerror}); `unshare -rn` may be allowed", None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sh14x", b"lo", _IS_UP))
    return None, before


def _call(name: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
