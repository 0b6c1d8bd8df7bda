"""Leading: of several services over one store, one operates triggers, notifications and retention."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from app.bootstrap.engines import Store
from app.bootstrap.unattended import Unattended
from app.engine import aio, outages

LOOK_SECONDS = 2.0  # Time between two checks whether this service leads.

_log = logging.getLogger(__name__)


def lead(store: Store, unattended: Unattended, closing: AsyncExitStack) -> None:
    """Operate triggers, notifications and retention for as long as this service leads."""
    closing.push_async_callback(unattended.stop)
    if store.leads is None:
        unattended.start()
        return
    following = asyncio.create_task(_follow(store.leads, unattended), name="lead")
    closing.push_async_callback(aio.end, following)


async def _follow(ask: Callable[[], Awaitable[bool]], unattended: Unattended) -> None:
    leads = False
    unknown = outages.Outage(_log, "it is not known which service leads: %s", "it is known again which service leads")
    # Forever: which service leads can change at any time.
    while True:
        try:
            now = await ask()
        except OSError as error:
            unknown.failed(error)
        else:
            unknown.worked()
            if leads and not now:
                # The other service has begun by now; two services must not do the same work.
                _log.warning("another service leads by now: this one stops triggers, notifications and retention")
                await unattended.stop()
            if now:
                unattended.start()
                # Changes made through another service are not announced here.
                unattended.check_triggers()
            leads = now
        await asyncio.sleep(LOOK_SECONDS)
