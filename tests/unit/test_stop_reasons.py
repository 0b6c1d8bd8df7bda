"""Commands that let paused runs continue."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain import stop_reasons


@pytest.mark.parametrize(
    ("reason", "detail", "act"),
    [
        ("budget_exhausted", {"budget": {"name": "daily"}, "limit": "tokens"}, "budgets set daily --max-tokens N"),
        ("budget_exhausted", {"budget": {"run_id": "top"}, "limit": "cost_usd"}, "runs limits top --max-cost N"),
        ("budget_exhausted", {}, "runs limits r"),
        ("time_limit", {"run_id": "top"}, "runs limits top --max-time 2h"),
        ("paused_by_person", {}, "runs unpause r"),
        ("workspace_missing", {}, "runs unpause r"),
        ("workspace_not_allowed", {"working_dir": "/elsewhere"}, None),
    ],
)
def test_the_command_is_that_of_the_cause(reason: str, detail: dict[str, Any], act: str | None) -> None:
    """The command raises the exhausted limit of the run or budget that has it; only a setting allows a folder."""
    found = stop_reasons.act("r", reason, {"code": reason, "detail": detail})

    assert found == (act and f"control-room {act}")
