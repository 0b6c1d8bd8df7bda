"""The actions of the audit list: every recorded action is a filter, and an unknown one is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app import errors
from app.domain import audit, run_orders

ROOT = Path(__file__).resolve().parents[2]
KNOWN = {f"{noun}.{verb}" for noun, verbs in audit.ACTIONS.items() for verb in verbs}
RECORDED = re.compile(r'(?:audit\.append\([^"]*|_change\(|action = |, )"([a-z]+\.[a-z_]+)"')


def test_every_recorded_action_is_known():
    """Every action that a service or a journal records is a filter of the audit list."""
    texts = [path.read_text() for path in (ROOT / "app" / "services").rglob("*.py")]
    found = {name for text in [*texts, Path(run_orders.__file__).read_text()] for name in RECORDED.findall(text)}
    recorded = {name for name in found if name.partition(".")[0] in audit.ACTIONS and not name.endswith(".json")}

    assert {"key.added", "budget.removed", "issue.edited", "plan.deleted", "gate.answered"} <= recorded
    assert recorded <= KNOWN


def test_the_page_names_every_action():
    """The how-to lists every action of the audit log and no other."""
    page = (ROOT / "docs" / "how-to" / "give-people-access.md").read_text()
    rows = [line for line in page.splitlines() if re.match(r"\| `[a-z]+\.", line)]

    assert set(re.findall(r"`([a-z]+\.[a-z_]+)`", "\n".join(row.split(" | ")[0] for row in rows))) == KNOWN


@pytest.mark.parametrize(
    ("action", "told"),
    [("budgets", "budget, prices"), ("run.canceled", "run.cancelled"), ("run.", "run.started"), ("", "run, gate")],
)
def test_an_unknown_action_is_refused(action: str, told: str):
    """An unknown noun or verb is refused, and the message names the known ones."""
    with pytest.raises(errors.RequestInvalid) as refused:
        audit.AuditQuery(action=action)

    assert told in refused.value.message
    assert (refused.value.flaws[0].path, refused.value.flaws[0].code) == ("query.action", "unknown_action")


@pytest.mark.parametrize("action", [None, "budget", "run.cancelled"])
def test_a_known_action_is_taken(action: str | None):
    """A filter may be absent, a noun, or an action of a noun."""
    assert audit.AuditQuery(action=action).action == action
