"""Allowance: how many files this process may have open. Each run that is loaded takes up to three."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def many_files() -> Iterator[int]:
    """Let this process open as many files as the machine lets it, for the block.

    Yields:
        How many it might open before: what its programs are to get, since some look at every number up to it.
    """
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems name a limit that they do not grant.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        yield usual
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))
