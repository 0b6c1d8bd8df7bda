"""The memory that this process holds."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from pathlib import Path

_ALIKE = 0.002
_LOOKS = 50
_BETWEEN_SECONDS = 0.2


async def settled_bytes() -> int:
    """Return the resident memory once nothing under way changes it any more, without what is free already."""
    earlier = resident_bytes()
    for _ in range(_LOOKS):
        await asyncio.sleep(_BETWEEN_SECONDS)
        present = resident_bytes()
        if abs(present - earlier) <= _ALIKE * earlier:
            break
        earlier = present
    return present


def resident_bytes() -> int:
    """Return the resident memory, after garbage is collected and free memory given back where the C library can do
    that.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
