"""Agents that abstain although a step needs their reply."""

from __future__ import annotations

from tests.integration import served


async def test_an_abstention_is_on_record_as_a_failed_step(service: served.Served) -> None:
    """After an abstention the journal, the answer and the ending agree: the step failed, and its slot is empty."""
    service.project.say("draft", text="ABSTAIN: I know too little.\n")
    shown = await service.run("unguarded")
    line = (await service.http.get(f"/api/runs/{shown['run_id']}/steps")).json()[-1]

    assert (shown["status"], shown["error"]["code"]) == ("failed", "abstained")
    assert [(step["key"], step["status"]) for step in shown["steps"]] == [("discover", "done"), ("draft", "failed")]
    assert (line["status"], line["error"]["code"], line["output_hash"]) == ("failed", "abstained", None)
    assert "I know too little." in shown["error"]["message"]
    assert "draft" not in shown["cache_summary"]
