"""Retention of conversations: removes the record of a conversation that no run has used for long."""

# A conversation is as old as the last move of the run that claimed it last: times of files change with copies,
# backups and repairs. What cannot be read, and what an unfinished run holds, is kept.

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
    """Forget every conversation whose last run ended before an instant, and return how many they were.

    A conversation of a run that has not ended is kept, however old it is, and so is what cannot be read.
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
    # Only the name of a deleted run is left.
    with contextlib.suppress(ValueError):
        return datetime.strptime(run_id[:_STAMPED], _STAMP).replace(tzinfo=UTC)
    return None
