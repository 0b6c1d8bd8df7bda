"""The resident memory of this process."""

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
    """Return the resident memory without free memory, once it has stopped changing or after ten seconds."""
    earlier = resident_bytes()
    for _ in range(_LOOKS):
        await asyncio.sleep(_BETWEEN_SECONDS)
        present = resident_bytes()
        if abs(present - earlier) <= _ALIKE * earlier:
            break
        earlier = present
    return present


def resident_bytes() -> int:
    """Collect garbage, return free memory to the system if the C library can, and return the resident memory."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
