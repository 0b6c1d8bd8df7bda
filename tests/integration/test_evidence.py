"""Evidence over HTTP: steps that require it, with real files and real receipts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.domain import plain
from tests.integration import served
from tests.integration.project import SCENE, Project, draft, unguarded

SCENE_PATH = "Story/Scenes/SCN-the-arrival.md"


@pytest.fixture
def project(project: Project) -> Project:
    """Return a project whose writer must bring evidence in one recipe."""
    recipe = unguarded() | {"recipe_id": "proven"}
    recipe["phase_b"][0]["evidence"] = True
    project.add_recipe(recipe)
    agents = json.loads((project.data / "agents.json").read_text(encoding="utf-8"))
    agents["agents"][0]["evidence"] = "any"
    project.write(".control-room/agents.json", json.dumps(agents))
    return project


async def proven(service: served.Served, reply: str, **body: Any) -> dict[str, Any]:
    """Run the recipe with this reply of the writer, and return the ended run."""
    service.project.say("draft", text=reply)
    return await service.run("proven", **body)


async def test_a_quote_of_a_file_is_looked_up(service: served.Served) -> None:
    """A quote that is in the scene lets the run continue, and the check is a step with the file's path and hash."""
    run = await proven(service, f'Dark.\nEvidence: "the harbour before dawn. Nobody waited" ({SCENE_PATH})')
    steps = (await service.http.get(f"/api/runs/{run['run_id']}/steps")).json()

    assert run["status"] == "done", run["error"]
    assert [step["key"] for step in steps] == ["discover", "draft", "draft.evidence"]
    assert steps[-1]["output"]["path"] == SCENE_PATH
    assert "dawn" in SCENE


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("It is dark.", "evidence_missing"),
        (f'Evidence: "the harbour" ({SCENE_PATH})\nEvidence: "dawn" ({SCENE_PATH})', "evidence_repeated"),
        ("Evidence: I just know", "evidence_malformed"),
        (f'Evidence: "the harbour after dawn" ({SCENE_PATH})', "quote_not_found"),
        ('Evidence: "root" (/etc/passwd)', "path_outside_workspace"),
        ('Evidence: "said" (.control-room/agents.json)', "path_outside_workspace"),
        ('Evidence: "dawn" (Story/none.md)', "file_not_found"),
        ("Evidence: receipt_id: rcpt_00000000000000000000", "receipt_unknown"),
    ],
)
async def test_a_rejected_reply_fails_the_run(service: served.Served, reply: str, code: str) -> None:
    """A rejected reply fails the run at the check, with the reason `evidence_rejected`."""
    run = await proven(service, reply)

    assert (run["status"], run["error"]["code"], run["error"]["key"]) == ("failed", code, "draft.evidence")
    assert run["ending"]["reason"] == "evidence_rejected"
    assert "evidence" in run["error"]["detail"]
    assert "draft" not in run["cache_summary"]


async def test_a_receipt_counts_in_its_session(service: served.Served) -> None:
    """A receipt of an earlier run is evidence in the same session, and not in another one."""
    first = await proven(service, f'Evidence: "dawn" ({SCENE_PATH})', session_id="book-one")
    slot = (await service.http.get(f"/api/runs/{first['run_id']}/cache/discovery")).json()
    reply = f"Seen.\nEvidence: receipt_id: {slot['receipt_id']}"
    same = await proven(service, reply, session_id="book-one")
    other = await proven(service, reply, session_id="book-two")

    assert same["status"] == "done", same["error"]
    assert (other["status"], other["error"]["code"]) == ("failed", "receipt_unknown")


async def test_a_resume_asks_the_agent_again(service: served.Served) -> None:
    """After a rejection, a resume repeats the prompt, and checks the new reply."""
    run = await proven(service, "It is dark.")
    service.project.say("draft", text=f'Evidence: "before dawn" ({SCENE_PATH})')
    await service.http.post(f"/api/runs/{run['run_id']}/resume", json={})
    again = await service.until(run["run_id"], "done", "failed")

    assert again["status"] == "done", again["error"]
    assert [step["key"] for step in again["steps"]].count("draft") >= 1


async def test_a_receipt_that_was_changed_by_hand_counts_no_more(service: served.Served) -> None:
    """A receipt with an edited payload is refused, with or without a new hash, even if its run is deleted."""
    first = await service.run("quick", session_id="book-one")
    slot = (await service.http.get(f"/api/runs/{first['run_id']}/cache/discovery")).json()
    reply = f"Seen.\nEvidence: receipt_id: {slot['receipt_id']}"
    assert (await proven(service, reply, session_id="book-one"))["status"] == "done"
    file = service.project.data / "audit" / "sessions" / "book-one" / "tool_receipts.jsonl"
    written = file.read_text(encoding="utf-8")
    line, rest = written.split("\n", 1)
    receipt = json.loads(line) | {"payload": {"matches": ["forged"]}}
    for forged in (receipt, receipt | {"sha256": plain.sha256(plain.content(receipt["payload"]))}):
        file.write_text(f"{json.dumps(forged)}\n{rest}", encoding="utf-8")
        run = await proven(service, reply, session_id="book-one")
        assert (run["status"], run["error"]["code"]) == ("failed", "receipt_altered")
    file.write_text(written, encoding="utf-8")
    await service.http.delete(f"/api/runs/{first['run_id']}")

    assert (await proven(service, reply, session_id="book-one"))["status"] == "done"
    file.write_text(f"{json.dumps(receipt)}\n{rest}", encoding="utf-8")
    run = await proven(service, reply, session_id="book-one")
    assert (run["status"], run["error"]["code"]) == ("failed", "receipt_altered")
    assert run["ending"]["reason"] == "evidence_rejected"


async def test_markdown_around_an_abstention_makes_it_no_reply(service: served.Served) -> None:
    """An abstention in bold letters counts as an abstention, not as a reply that fills a slot."""
    run = await proven(service, "**ABSTAIN:** not my field")

    assert (run["status"], run["error"]["code"]) == ("failed", "abstained")
    assert run["error"]["message"].endswith("not my field")


async def test_a_check_that_was_not_needed_leaves_its_step_done(service: served.Served) -> None:
    """In the graph a step whose evidence check was skipped has its own result, and not that of the check."""
    recipe = draft() | {"recipe_id": "exempt", "task_patterns": []}
    recipe["phase_b"][0].update(evidence=True, agent_archetype="editor")
    service.project.add_recipe(recipe)
    service.project.say("draft", text="It is dark.")
    service.project.say("polish", hang=True)
    run_id = await service.start("exempt", args={"scene_path": SCENE_PATH})
    run = await service.until(run_id, step="polish")
    graph = (await service.http.get(f"/api/runs/{run_id}/graph")).json()
    drawn = {node["id"]: (node["status"], node["key"]) for node in graph["nodes"]}
    await service.http.post(f"/api/runs/{run_id}/cancel")
    await service.until(run_id, "cancelled")

    assert {step["key"]: step["status"] for step in run["steps"]}["draft.evidence"] == "skipped"
    assert drawn["draft"] == ("done", "draft")
    assert drawn["polish"] == ("running", "polish")
