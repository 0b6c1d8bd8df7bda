"""The one process from which a test process forks services and lives of the laboratory: it has
loaded what each needs.
"""

from __future__ import annotations

import functools
import multiprocessing
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

_PRELOADED = (
    "app.crash_lab.preloaded",
    "app.crash_lab.fork_server",
    "tests.acceptance.forked_service",
    "tests.acceptance.small_service",
)


@functools.cache
def processes() -> ForkServerContext:
    """Return what makes processes.

    It is begun here: begun by whoever needs it first it would have loaded what that one needs, and nothing for others.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    forkserver.ensure_running()
    return context
