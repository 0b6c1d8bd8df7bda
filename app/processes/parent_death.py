"""The child's end of the leash: a process that dies with the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def hold(parent_pid: int) -> None:
    """Make the kernel kill this process when its parent ends, by SIGKILL too; end at once if it has ended already.

    Where the kernel has no such service, the end of the pipe to standard input is the only leash. Signals by which
    people and machines end a service are ignored: the service may still want its answer.
    """
    for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(0)
