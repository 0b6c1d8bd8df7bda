"""Causes of open steps."""

from __future__ import annotations

from typing import Any

import pytest

from app import clock
from app.domain import operations
from app.engine import open_steps
from app.services import step_causes

SINCE = "2026-02-10T14:30:00.000Z"
NOW = clock.instant("2026-02-10T15:30:00.000Z")


@pytest.mark.parametrize(
    ("by_journal", "kind", "text"),
    [
        (False, "agent_silent", "Step a: agent w (backend b) has been silent for 60 min"),
        (True, "agent", "Step a: agent w (backend b) has been at work, or in the queue of its backend, for 60 min"),
    ],
)
def test_a_journal_shows_neither_silence_nor_queues(by_journal: bool, kind: str, text: str) -> None:
    """A call that only the journal shows may wait for its backend, so it is not called silent."""
    call: Any = operations.AgentCall(agent_id="w", archetype="writer", backend="b", prompt=("Do it.",))
    wait = open_steps.StepWait(key="a", operation=call, attempt=1, since=SINCE)
    (cause,) = step_causes.causes("r", [wait], NOW, 300, by_journal=by_journal)

    assert (cause.kind, cause.text) == (kind, text)
