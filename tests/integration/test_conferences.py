"""Conferences over HTTP: real tools, files and receipts, and agents with scripted replies."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import example_project
from tests.integration import conferring, served
from tests.integration.conferring import DONE, LOOK, QUOTED, SCENE_PATH, call
from tests.integration.held import DELAY_SECONDS, Held
from tests.integration.project import Project

MESSAGE = "Does the arrival hold up?"


@pytest.fixture
def project(project: Project) -> Project:
    """Return a project that is prepared for conferences."""
    return conferring.prepare(project)


async def post(service: served.Served, key: str | None = None, **body: Any) -> httpx.Response:
    """Request a conference."""
    headers = {"Idempotency-Key": key} if key else {}
    return await service.http.post("/api/conferences", json={"message": MESSAGE} | body, headers=headers)


async def held(service: served.Served, **body: Any) -> dict[str, Any]:
    """Hold a conference and return its ended run."""
    answer = await post(service, **body)
    assert answer.status_code == 201, answer.text
    return await service.until(answer.json()["run_id"], "done", "failed", "cancelled")


async def steps(service: served.Served, run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the newest line of a run's journal for each key."""
    lines = (await service.http.get(f"/api/runs/{run['run_id']}/steps")).json()
    return {line["key"]: line for line in lines}


async def issue(service: served.Served, run: dict[str, Any]) -> dict[str, Any]:
    """Return the one issue of a run."""
    (row,) = (await service.http.get("/api/issues", params={"run_id": run["run_id"]})).json()
    shown: dict[str, Any] = (await service.http.get(f"/api/issues/{row['issue_id']}")).json()
    return shown


async def test_a_conference_is_a_run(service: served.Served) -> None:
    """The answer names run and session; the run is listed, shown and streamed like any other."""
    body: dict[str, Any] = {"session_id": "book-one", "labels": {"book": "one"}, "priority": 3}
    answer = await post(service, **body)
    run = await service.until(answer.json()["run_id"], "done", "failed")
    (listed,) = (await service.http.get("/api/runs", params={"recipe_id": "conference"})).json()
    events = (await service.http.get(f"/api/runs/{run['run_id']}/events")).text

    assert answer.headers["location"] == f"/api/runs/{run['run_id']}"
    assert answer.json().keys() == {"run_id", "session_id", "status"}
    assert answer.json()["session_id"] == listed["session_id"] == "book-one"
    assert run["status"] == "done", run["error"]
    assert (listed["run_id"], listed["dialect"], listed["description"]) == (run["run_id"], "conference", MESSAGE)
    assert (listed["labels"], listed["priority"]) == ({"book": "one"}, 3)
    assert set(run["cache_summary"]) == {"tool", "critic-1", "editor-1", "writer-1", "transcript"}
    assert "run.ended" in events


async def test_the_chief_gathers_with_real_tools(service: served.Served) -> None:
    """A call leaves a receipt in the session; the transcript links it, and every participant sees it."""
    run = await held(service)
    lines = await steps(service, run)
    receipt = (await service.http.get(f"/api/audit/receipts/{lines['tool']['receipt_id']}")).json()
    kept = await issue(service, run)
    log = (await service.http.get(f"/api/runs/{run['run_id']}/logs/opinion.critic-1.1.prompt.md")).text

    assert (receipt["tool"], receipt["args"]) == ("prose_analyzer", {"scene_path": SCENE_PATH})
    assert (kept["kind"], kept["receipts"]) == ("conference", [receipt["receipt_id"]])
    assert (kept["run_id"], kept["session_id"], kept["key"]) == (run["run_id"], receipt["session_id"], "transcript")
    assert f"receipt_id: {receipt['receipt_id']}" in log
    assert log.startswith("The critic.\n\nEnd with exactly one line of evidence")


async def test_prompts_differ_in_the_role_alone(service: served.Served) -> None:
    """All prompts are identical after the part about the role, and contain no part of another's reply."""
    for name in conferring.TEAM:
        service.project.say(f"opinion.{name}-1", text=f"<{name}> {QUOTED}")
    run = await held(service)
    logs = [f"/api/runs/{run['run_id']}/logs/opinion.{name}-1.1.prompt.md" for name in conferring.TEAM]
    sent = [(await service.http.get(log)).content for log in logs]
    parts = [content.split(b"\n\n---\n\n", 1) for content in sent]

    assert [standing.split(b"\n")[0] for standing, _ in parts] == [b"The critic.", b"The editor.", b"The writer."]
    assert len({prompt for _, prompt in parts}) == 1
    assert not any(f"<{name}>".encode() in content for name in conferring.TEAM for content in sent)


async def test_an_opinion_can_name_the_receipt(service: served.Served) -> None:
    """The receipt of an earlier conference is evidence in the same session, and not in another one."""
    first = await held(service, session_id="book-one")
    receipt_id = (await steps(service, first))["tool"]["receipt_id"]
    service.project.say("opinion.critic-1", text=f"Seen.\nEvidence: receipt_id: {receipt_id}")
    same = await held(service, session_id="book-one")
    other = await held(service, session_id="book-two")

    assert same["ending"]["failed_steps"] == []
    assert other["ending"]["failed_steps"] == ["opinion.critic-1.evidence"]
    assert (await steps(service, other))["opinion.critic-1.evidence"]["error"]["code"] == "receipt_unknown"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("It is dark.", "evidence_missing"),
        (f"{QUOTED}\n{QUOTED}", "evidence_repeated"),
        (f'Evidence: "the harbour after dawn" ({SCENE_PATH})', "quote_not_found"),
        ('Evidence: "root" (/etc/passwd)', "path_outside_workspace"),
        ('Evidence: "root" (../../../etc/passwd)', "path_outside_workspace"),
        ('Evidence: "said" (.control-room/agents.json)', "path_outside_workspace"),
        ("Evidence: receipt_id: rcpt_00000000000000000000", "receipt_unknown"),
    ],
)
async def test_replies_without_their_evidence_are_rejected(service: served.Served, reply: str, code: str) -> None:
    """Step, ending and transcript report that the evidence was rejected; the other opinions remain valid."""
    service.project.say("opinion.editor-1", text=reply)
    run = await held(service)
    line = (await steps(service, run))["opinion.editor-1.evidence"]
    opinions = {each["agent_id"]: each for each in (await issue(service, run))["facts"]["opinions"]}

    assert (run["status"], run["ending"]["partial"]) == ("done", True)
    assert run["ending"]["failed_steps"] == ["opinion.editor-1.evidence"]
    assert (line["error"]["code"], line["tool"]) == (code, None)
    assert (opinions["editor-1"]["verdict"], opinions["editor-1"]["code"]) == ("rejected", code)
    assert {opinions[name]["verdict"] for name in ("critic-1", "writer-1")} == {"accepted"}
    assert "editor-1" not in run["cache_summary"]


async def test_tools_are_allowed_by_the_server(service: served.Served) -> None:
    """A tool that the request does not allow is refused; wrong arguments are an error of the tool."""
    service.project.say("chief", text=call("file_locator", search_criteria="x"))
    service.project.say("chief#2", text=call("prose_analyzer", nonsense=1))
    service.project.say("chief#3", text=LOOK)
    run = await held(service, allowed_tools=["prose_analyzer"])
    lines = await steps(service, run)

    assert run["status"] == "done", run["error"]
    assert [lines[key]["error"] and lines[key]["error"]["code"] for key in ("tool", "tool#2", "tool#3")] == [
        "tool_not_allowed",
        "invalid_args",
        None,
    ]
    assert lines["tool"]["receipt_id"] is None
    assert "invalid_args" in (await service.http.get(f"/api/runs/{run['run_id']}/logs/chief%233.1.prompt.md")).text


async def test_a_tool_can_be_required(service: served.Served) -> None:
    """A chief that calls no tool is reminded once; then the run fails, and a resume calls the chief again."""
    service.project.say("chief", text=DONE)
    run = await held(service, require_tool=True)
    service.project.say("chief#2", text=LOOK)
    service.project.say("chief#3", text=DONE)
    await service.http.post(f"/api/runs/{run['run_id']}/resume", json={})
    again = await service.until(run["run_id"], "done", "failed")

    assert (run["status"], run["error"]["code"], run["error"]["key"]) == ("failed", "tool_required", "chief#2")
    assert again["status"] == "done", again["error"]


async def test_a_required_call_must_bring_something(service: served.Served) -> None:
    """A chief learns that all its calls failed and cannot end; without further calls, the run fails."""
    service.project.say("chief", text=call("prose_analyzer", nonsense=1))
    service.project.say("chief#2", text=DONE)
    service.project.say("chief#3", text=call("prose_analyzer", nonsense=2))
    run = await held(service, require_tool=True, max_tool_calls=2)
    told = (await service.http.get(f"/api/runs/{run['run_id']}/logs/chief%233.1.prompt.md")).text

    assert (run["status"], run["error"]["code"], run["error"]["key"]) == ("failed", "tool_required", "chief#3")
    assert [each["code"] for each in run["error"]["detail"]["failed"]] == ["invalid_args", "invalid_args"]
    assert "No call has brought anything yet." in told


async def test_a_resume_changes_nothing(service: served.Served) -> None:
    """A resume with another message or configuration is refused and leaves the run failed."""
    service.project.say("chief", text=DONE)
    run = await held(service, require_tool=True)
    answer = await service.http.post(f"/api/runs/{run['run_id']}/resume", json={"args": {"message": "And now?"}})
    shown = await service.show(run["run_id"])

    assert (answer.status_code, answer.json()["code"]) == (400, "resume_unchangeable")
    assert shown["status"] == "failed"


async def test_a_request_without_names_asks_all_conferring_agents(service: served.Served) -> None:
    """The request names agents by id or archetype, in order; without names, all agents that confer are asked."""
    named = await held(service, agents=["writer", "critic-1"], allowed_tools=[])
    everybody = await held(service, allowed_tools=[])

    assert [each["agent_id"] for each in (await issue(service, named))["facts"]["opinions"]] == ["writer-1", "critic-1"]
    assert set(named["cache_summary"]) == {"writer-1", "critic-1", "transcript"}
    assert set(everybody["cache_summary"]) == {"critic-1", "editor-1", "writer-1", "transcript"}


@pytest.mark.parametrize(
    ("body", "path", "code"),
    [
        ({"agents": ["critics"]}, "$.agents[0]", "unknown_agent"),
        ({"agents": ["critic", "critic-1"]}, "$.agents[1]", "repeated_agent"),
        ({"agents": ["planner"]}, "$.agents[0]", "agent_not_conferring"),
        ({"agents": []}, "$.agents", "no_participants"),
        ({"agents": ["x"] * 21}, "$.agents", "invalid"),
        ({"allowed_tools": ["shell"]}, "$.allowed_tools[0]", "unknown_tool"),
        ({"allowed_tools": [], "require_tool": True}, "$.require_tool", "no_tool_allowed"),
        ({"message": "  "}, "$.message", "invalid"),
        ({"message": "x" * 20_001}, "$.message", "invalid"),
        ({"message": 5}, "$.message", "wrong_type"),
        ({"max_tool_calls": 21}, "$.max_tool_calls", "invalid"),
        ({"max_tool_calls": "5"}, "$.max_tool_calls", "wrong_type"),
        ({"require_tool": 1}, "$.require_tool", "wrong_type"),
        ({"agent": ["critic"]}, "$.agent", "unknown_field"),
        ({"session_id": "../x"}, "$.session_id", "invalid"),
        ({"priority": 101}, "$.priority", "invalid"),
        ({"labels": {"a b": "c"}}, '$.labels["a b"]', "invalid"),
    ],
)
async def test_wrong_requests_are_refused_with_the_place(
    service: served.Served, body: dict[str, Any], path: str, code: str
) -> None:
    """No run starts, and the flaw names the wrong value."""
    answer = await post(service, **body)

    assert answer.status_code == 400, answer.text
    assert (answer.json()["flaws"][0]["path"], answer.json()["flaws"][0]["code"]) == (path, code)
    assert (await service.http.get("/api/runs")).json() == []


async def test_without_a_chief(project: Project) -> None:
    """A request without a configured chief is refused with a code of its own."""
    document = conferring.agents()
    document["agents"] = [agent for agent in document["agents"] if agent["id"] != "chief-1"]
    project.write(".control-room/agents.json", json.dumps(document))
    async with served.in_process(project) as service:
        answer = await post(service)

    assert (answer.status_code, answer.json()["code"]) == (400, "no_chief")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"working_dir": "/etc"}, "working_dir_refused"),
        ({"working_dir": "nowhere"}, "working_dir_missing"),
        ({"parent_run_id": "nobody"}, "unknown_parent"),
    ],
)
async def test_a_conference_follows_the_rules_of_all_runs(
    service: served.Served, body: dict[str, Any], code: str
) -> None:
    """The rules of all runs for workspace and parent apply to conferences."""
    answer = await post(service, **body)

    assert (answer.status_code, answer.json()["code"]) == (400, code)


async def test_a_repeated_request_finds_its_conference(service: served.Served) -> None:
    """The same key and request find the same run, 200; another agent, tool or message under that key is a 409."""
    first = await post(service, "one", agents=["critic"])
    again = await post(service, "one", agents=["critic"])
    others = [
        await post(service, "one", **body)
        for body in (
            {"agents": ["editor"]},
            {},
            {"agents": ["critic"], "allowed_tools": []},
            {"agents": ["critic"], "require_tool": True},
            {"agents": ["critic"], "max_tool_calls": 2},
            {"agents": ["critic"], "message": "Else?"},
        )
    ]

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["run_id"] == first.json()["run_id"]
    assert again.json()["session_id"] == first.json()["session_id"]
    assert [(answer.status_code, answer.json()["code"]) for answer in others] == [(409, "idempotency_conflict")] * 6
    assert len((await service.http.get("/api/runs")).json()) == 1


async def test_a_repetition_is_found_when_the_agent_is_gone(project: Project) -> None:
    """A repetition finds its conference even after `agents.json` has changed."""
    async with served.in_process(project) as service:
        first = await post(service, "one", agents=["critic"])
        await service.until(first.json()["run_id"], "done")
    document = conferring.agents()
    document["agents"] = [agent for agent in document["agents"] if agent["id"] not in ("critic-1", "critic-001")]
    document["agents"].append({"id": "critic-001", "archetype": "reader"})
    project.write(".control-room/agents.json", json.dumps(document))
    async with served.in_process(project) as service:
        again = await post(service, "one", agents=["critic"])

    assert (again.status_code, again.json()["run_id"]) == (200, first.json()["run_id"])


async def test_at_once_the_same_request_makes_one_conference(service: served.Served) -> None:
    """Concurrent identical requests start one run."""
    answers = await asyncio.gather(*(post(service, "one") for _ in range(5)))

    assert {answer.status_code for answer in answers} == {200, 201}
    assert len({answer.json()["run_id"] for answer in answers}) == 1


@pytest.mark.parametrize(("key", "left"), [("chief#2", {"chief", "tool"}), ("opinion.editor-1", {"chief", "tool"})])
async def test_a_conference_can_be_cancelled(service: served.Served, key: str, left: set[str]) -> None:
    """In either phase, a cancelled conference keeps its answers, and a resume continues after them."""
    service.project.say(key, hang=True)
    run_id = (await post(service)).json()["run_id"]
    await service.until(run_id, "done", "failed", step=key)
    answer = await service.http.post(f"/api/runs/{run_id}/cancel", json={})
    run = await service.until(run_id, "cancelled")
    before = await steps(service, run)
    service.project.say(key, text=DONE if key.startswith("chief") else QUOTED)
    await service.http.post(f"/api/runs/{run_id}/resume", json={})
    again = await service.until(run_id, "done", "failed")
    after = await steps(service, again)

    assert answer.status_code == 200
    assert (run["status"], run["ending"]["reason"]) == ("cancelled", "cancelled")
    assert left <= set(before)
    assert key not in before
    assert again["status"] == "done", again["error"]
    assert {name: line["attempt"] for name, line in after.items() if name in before} == dict.fromkeys(before, 1)


async def test_a_conference_pauses_between_its_phases(service: served.Served, held: Held) -> None:
    """A conference pauses between two steps, and continues from there."""
    service.project.say("chief", text=LOOK, delay_seconds=DELAY_SECONDS)
    run_id = (await post(service)).json()["run_id"]
    await service.until(run_id, "done", step="chief")
    await service.http.post(f"/api/runs/{run_id}/pause", json={})
    held.release()
    paused = await service.until(run_id, "paused")
    await service.http.post(f"/api/runs/{run_id}/unpause", json={})
    run = await service.until(run_id, "done", "failed")

    assert "transcript" not in paused["cache_summary"]
    assert run["status"] == "done", run["error"]


async def test_only_those_without_an_answer_are_asked_again(service: served.Served) -> None:
    """Without a valid opinion the run fails and keeps its transcript; a resume repeats neither chief nor tool."""
    conferring.same_answer(service.project, text="I just know.")
    run = await held(service)
    issues = (await service.http.get("/api/issues")).json()
    conferring.same_answer(service.project, text=QUOTED)
    service.project.say("opinion.writer-1", error={"code": "agent_error", "message": "no credit"})
    await service.http.post(f"/api/runs/{run['run_id']}/resume", json={})
    again = await service.until(run["run_id"], "done", "failed")
    lines = await steps(service, again)

    assert (run["status"], run["error"]["code"], len(issues)) == ("failed", "no_opinion", 1)
    assert again["status"] == "done", again["error"]
    assert again["ending"]["failed_steps"] == ["opinion.writer-1"]
    assert {key: lines[key]["attempt"] for key in ("chief", "tool", "chief#2", "opinion.critic-1")} == {
        "chief": 1,
        "tool": 1,
        "chief#2": 1,
        "opinion.critic-1": 2,
    }


async def test_a_restart_changes_nothing(project: Project, tmp_path: Path) -> None:
    """The next service shows an ended conference exactly as the one that held it."""
    async with served.in_process(project) as service:
        run = await held(service)
        text = (await service.http.get(f"/api/runs/{run['run_id']}/cache/transcript")).json()["text"]
    async with served.in_process(project) as service:
        shown = await service.show(run["run_id"])
        again = (await service.http.get(f"/api/runs/{run['run_id']}/cache/transcript")).json()["text"]

    assert shown == run
    assert again == text
    assert "## Opinions" in text


async def test_a_conference_works_in_its_folder(service: served.Served) -> None:
    """Tools read `working_dir`, and quotes are resolved in it."""
    service.project.write("Other/Scenes/a.md", "# Elsewhere\n\nThe bridge was empty at noon.\n")
    service.project.say("chief", text=call("prose_analyzer", scene_path="Scenes/a.md"))
    conferring.same_answer(service.project, text='Empty.\nEvidence: "The bridge was empty at noon." (Scenes/a.md)')
    run = await held(service, working_dir="Other")

    assert (run["status"], run["ending"]["partial"]) == ("done", False)
    assert run["working_dir"].endswith("/Other")


async def test_no_recipe_of_the_catalogue(service: served.Served) -> None:
    """A conference starts at its own address only, and a resume cannot give it another message or configuration."""
    started = await service.http.post("/api/runs", json={"recipe_id": "conference", "args": {"message": "x"}})
    run = await held(service, agents=["critic"], allowed_tools=[])
    conferring.same_answer(service.project, text="no")
    failed = await held(service, agents=["critic"], allowed_tools=[])
    resumed = [
        await service.http.post(f"/api/runs/{failed['run_id']}/resume", json=body)
        for body in ({"args": {"message": "y"}}, {"recipe": "current"})
    ]

    assert (started.status_code, started.json()["code"]) == (400, "unknown_recipe")
    assert run["status"] == "done"
    assert [answer.status_code for answer in resumed] == [400, 400]


async def test_the_team_of_the_example_confers(tmp_path: Path) -> None:
    """In the example project the canon checker finds the planted contradiction in scene 21, and opinions quote it."""
    project = conferring.made(tmp_path / "project")
    example_project.copy(tmp_path / "example")
    shutil.copytree(project.data, tmp_path / "example" / ".control-room", dirs_exist_ok=True)
    scene = "Story/Scenes/SCN-the-arrival.md"
    project.root = tmp_path / "example"
    project.data = tmp_path / "example" / ".control-room"
    project.say("chief", text=call("canon_checker", scene_path=scene, canon_paths=["Compendium"]))
    project.say(
        "opinion.critic-1", text=f'Grey, not green.\nEvidence: "Kael\'s green eyes searched the tower" ({scene})'
    )
    project.say("opinion.editor-1", text=f'Grey.\nEvidence: "Kael\'s grey eyes searched the tower" ({scene})')
    async with served.in_process(project) as service:
        run = await held(service, agents=["critic", "editor"], allowed_tools=["canon_checker"], require_tool=True)
        prompt = (await service.http.get(f"/api/runs/{run['run_id']}/logs/opinion.critic-1.1.prompt.md")).text
        opinions = (await issue(service, run))["facts"]["opinions"]

    assert "green" in prompt
    assert "receipt_id: rcpt_" in prompt
    assert [(each["agent_id"], each["verdict"], each["code"]) for each in opinions] == [
        ("critic-1", "accepted", None),
        ("editor-1", "rejected", "quote_not_found"),
    ]


async def test_a_preview_bounds_the_calls_of_a_conference(service: served.Served) -> None:
    """A preview counts the chief's turns and the opinions; a resume has only those left that are still missing."""
    service.project.say("opinion.critic-1", error={"code": "agent_error", "message": "No."})
    for name in ("editor", "writer"):
        service.project.say(f"opinion.{name}-1", text="I think so.")
    run = await held(service, max_tool_calls=2)
    previews = [
        (await service.http.post(f"/api/runs/{run['run_id']}/preview", json=body)).json()
        for body in ({"order": "fork", "from": "chief"}, {"order": "resume"})
    ]

    assert run["status"] == "failed"
    assert [preview["calls_at_most"] for preview in previews] == [6, 3], previews
    assert all("its programs report no prices" not in (preview["note"] or "") for preview in previews)
