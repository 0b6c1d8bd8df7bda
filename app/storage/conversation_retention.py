"""Retention of conversations: removes records of conversations whose last run ended long ago."""

# A conversation is as old as the last move of the run that claimed it last, since copies, backups and repairs change
# the times of files. Unreadable conversations and those of unfinished runs are kept.

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime

from app import clock, errors
from app.domain import states
from app.engine import stores
from app.storage.agent_sessions import StoredAgentSessions

_STAMP = "%Y%m%dT%H%M%SZ"
_STAMPED = 16
_FAILURES = (errors.ControlRoomError, errors.StorageFault)

_log = logging.getLogger(__name__)


async def sweep(sessions: StoredAgentSessions, store: stores.RunStore, before: datetime) -> int:
    """Remove every conversation whose last run ended before an instant, and return how many were removed.

    A conversation of an unfinished run, or one that cannot be read, is kept at any age.
    """
    forgotten = 0
    try:
        claims = await sessions.claims()
    except _FAILURES as error:
        _log.warning("old conversations are left: %s", error.message, extra={"code": error.code})
        return 0
    for agent_session_id, run_id in claims:
        try:
            forgotten += await _is_old(store, run_id, before) and await sessions.forget(agent_session_id, run_id)
        except _FAILURES as error:
            _log.warning("the conversation %s is left: %s", agent_session_id, error.message, extra={"code": error.code})
    if forgotten:
        _log.info("%s old conversations were forgotten", forgotten)
    return forgotten


async def _is_old(store: stores.RunStore, run_id: str, before: datetime) -> bool:
    try:
        found = await store.summary(run_id)
    except errors.NotFound:
        began = _began_at(run_id)
        return began is not None and began < before
    return states.RunState(found.status).finished and clock.instant(found.updated_at) < before


def _began_at(run_id: str) -> datetime | None:
    # The run is deleted; its id still contains the time at which it began.
    with contextlib.suppress(ValueError):
        return datetime.strptime(run_id[:_STAMPED], _STAMP).replace(tzinfo=UTC)
    return None
