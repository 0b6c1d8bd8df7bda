"""The one process from which a test process forks services and laboratory processes, with their modules loaded."""

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
    """Return the context that creates processes.

    It starts the fork server here: started by its first user, the server would have preloaded only that user's modules.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    forkserver.ensure_running()
    return context
