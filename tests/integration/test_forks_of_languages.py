"""Forks in all four languages, and conversations, which a fork never shares with its source."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.integration import served
from tests.integration.project import Project
from tests.unit.dialects.agent_recipes import recipe_harness as machines
from tests.unit.dialects.amplifier import recipe_harness as flows

SAYING = """
import json, pathlib, sys
home, argv = pathlib.Path(sys.argv[1]), sys.argv[2:]
way = "--resume" if "--resume" in argv else "--session-id"
talk, prompt = argv[argv.index(way) + 1], sys.stdin.read() or argv[-1]
with (home / "calls.jsonl").open("a") as lines:
    lines.write(json.dumps({"way": way, "talk": talk, "prompt": prompt}) + "\\n")
step = max(("Review it.", "Mend it.", "Commit it.", "Commit slowly."), key=prompt.rfind)
outcome = {"Review it.": "no-issues"}.get(step, "committed")
result = {"type": "result", "session_id": talk, "is_error": False, "result": 'WORDS\\n{"outcome": "%s"}' % outcome}
print(json.dumps(result | {"usage": {"input_tokens": 5, "output_tokens": 3}, "total_cost_usd": 0.5}))
"""


async def forked(service: served.Served, run_id: str, **body: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Fork a run, wait for its end, and return the run and its journal."""
    answer = await service.http.post(f"/api/runs/{run_id}/fork", json=body)
    assert answer.status_code == 201, answer.text
    shown = await service.until(answer.json()["run_id"], "done", "failed")
    return shown, list((await service.http.get(f"/api/runs/{shown['run_id']}/steps")).json())


async def test_a_conversation_is_begun_from_the_journal(project: Project) -> None:
    """A fork has its own conversation, which begins with the prompts and replies of the steps that it took over."""
    project.write(".control-room/recipes/agent_recipes/small.json", json.dumps(machines.recipe()))
    command = [sys.executable, "-IS", str(project.write("agent.py", SAYING)), str(project.root)]
    backend = {"type": "claude-code", "command": command, "allowed_tools": ["Bash"]}
    project.write(".control-room/agents.json", json.dumps({"agents": [], "backends": {"own": backend}}))
    async with served.in_process(project) as service:
        source = await service.run("small", args={"backend": "own"})
        fork, lines = await forked(service, source["run_id"], **{"from": "commit", "prompt": "Commit slowly."})
        second, _ = await forked(service, fork["run_id"], **{"from": "commit"})
    calls = [json.loads(line) for line in (project.root / "calls.jsonl").read_text().splitlines()]
    spoken = [call["talk"] for call in calls]

    assert (source["status"], fork["status"], second["status"]) == ("done",) * 3, (fork["error"], second["error"])
    assert [line["key"] for line in lines if line.get("taken_over")] == ["review"]
    assert len(calls) == 4
    assert len(set(spoken)) == 3
    assert spoken[0] == spoken[1] == source["machine"]["sessionId"]
    assert len({shown["machine"]["sessionId"] for shown in (source, fork, second)}) == 3
    assert (calls[2]["way"], calls[3]["way"]) == ("--session-id", "--session-id")
    assert calls[2]["prompt"].index("Review it.") < calls[2]["prompt"].index("Commit slowly.")
    assert fork["usage"]["cost_usd"] == 0.5


async def test_a_preview_counts_the_price_of_the_conversation(project: Project) -> None:
    """A preview of a conversation reports the most that it costs, by the backend that the run names."""
    project.write(".control-room/recipes/agent_recipes/small.json", json.dumps(machines.recipe()))
    project.say("review", text='{"outcome": "no-issues"}')
    project.say("*", text='{"outcome": "committed"}')
    agents = json.loads((project.data / "agents.json").read_text())
    agents["backends"]["said"] |= {"max_cost_per_call": 0.5}
    project.write(".control-room/agents.json", json.dumps(agents))
    async with served.in_process(project) as service:
        source = await service.run("small", args={"backend": "said"})
        body = {"order": "fork", "from": "commit"}
        preview = (await service.http.post(f"/api/runs/{source['run_id']}/preview", json=body)).json()

    assert source["status"] == "done", source["error"]
    assert preview["cost_usd_at_most"] == preview["calls_at_most"] * 0.5 > 0
    assert preview["note"] is None


async def test_a_preview_counts_no_reminder_of_a_kept_step(project: Project) -> None:
    """A resume of a state machine has at most the calls and reminders of the steps that it has not finished."""
    review = {**machines.REVIEW, "onOutcome": machines.REVIEW["onOutcome"] | {"issues-found": {"nextStep": "commit"}}}
    recipe = machines.recipe(steps={"review": review, "commit": machines.COMMIT})
    project.write(".control-room/recipes/agent_recipes/small.json", json.dumps(recipe))
    project.say("review", text='{"outcome": "no-issues"}')
    project.say("commit", error={"code": "agent_error", "message": "No."})
    async with served.in_process(project) as service:
        source = await service.run("small", args={"backend": "said"})
        answer = await service.http.post(f"/api/runs/{source['run_id']}/preview", json={"order": "resume"})

    assert source["status"] == "failed"
    assert answer.json()["calls_at_most"] == 2


async def test_a_preview_drops_steps_that_the_run_does_not_reach(project: Project) -> None:
    """A preview of a fork that ends at once repeats no step, and pays for none."""
    project.write(".control-room/recipes/agent_recipes/small.json", json.dumps(machines.recipe()))
    project.say("review", text='{"outcome": "no-issues"}')
    project.say("*", text='{"outcome": "committed"}')
    async with served.in_process(project) as service:
        source = await service.run("small", args={"backend": "said"})
        changes = {"args": {"max_steps": 1}}
        body = {"order": "fork", **changes}
        preview = (await service.http.post(f"/api/runs/{source['run_id']}/preview", json=body)).json()
        fork, lines = await forked(service, source["run_id"], **changes)

    assert (source["status"], fork["error"]["code"], len(lines)) == ("done", "max_total_steps", 1)
    assert [(step["key"], step["action"]) for step in preview["steps"]] == [
        ("review", "taken_over"),
        ("commit", "dropped"),
    ]
    assert (preview["finished"], preview["taken_over"], preview["again"], preview["calls_at_most"]) == (True, 1, 0, 0)


async def test_a_preview_names_a_limit_that_is_used_up(project: Project) -> None:
    """A preview of a resume announces the pause of a run whose next call has no room in its limit."""
    project.say("*", text="The lantern was dark.")
    check = {"id": "check", "type": "bash", "command": "test -e done.flag"}
    steps = [flows.step("first", agent="writer"), check, flows.step("last", agent="writer")]
    project.write(".control-room/recipes/amplifier/small.yaml", json.dumps(flows.later(*steps)))
    async with served.in_process(project) as service:
        run_id = (await service.run("small", limits={"calls": 1}))["run_id"]
        previews = [
            (await service.http.post(f"/api/runs/{run_id}/preview", json={"order": order})).json()
            for order in ("resume", "fork")
        ]
        project.write("done.flag", "")
        await service.http.post(f"/api/runs/{run_id}/resume")
        paused = await service.until(run_id, "paused", "failed", "done")

    assert (paused["status"], paused["reason"]) == ("paused", "budget_exhausted")
    assert [(preview["calls_at_most"], preview["note"]) for preview in previews] == [
        (0, "the run has used up its limit of calls, and pauses before its next call"),
        (1, previews[1]["note"]),
    ]
    assert "used up" not in previews[1]["note"]


async def test_a_preview_counts_the_calls_that_a_run_has_made_itself(project: Project) -> None:
    """The rest of a limit is without calls of programs of models, and with those that a fork took over."""
    project.say("*", text="The lantern was dark.")
    check = {"id": "check", "type": "bash", "command": "false"}
    steps = [flows.step("first", agent="writer"), check, flows.step("last", agent="writer")]
    project.write(".control-room/recipes/amplifier/small.yaml", json.dumps(flows.later(*steps)))
    ask = {"provider": "own", "input_file": "prompt.md"}
    workflow = {
        "version": "1.1",
        "providers": {"own": {"command": ["cat"], "input_mode": "stdin"}},
        "steps": [{"name": "A", **ask}, {"name": "Check", "command": ["false"]}, {"name": "B", **ask}],
    }
    project.write(".control-room/recipes/orchestrate/programs.yaml", json.dumps(workflow))
    project.write("prompt.md", "Say it.")
    previews = []
    async with served.in_process(project) as service:
        source = await service.run("small", limits={"calls": 1})
        fork, _ = await forked(service, source["run_id"])
        asked = await service.run("programs", limits={"calls": 1})
        for run in (fork, asked):
            answer = await service.http.post(f"/api/runs/{run['run_id']}/preview", json={"order": "resume"})
            previews.append(answer.json())

    assert (source["status"], fork["status"], asked["status"]) == ("failed",) * 3
    assert [preview["calls_at_most"] for preview in previews] == [1, 0]


async def test_a_flow_of_amplifier(project: Project) -> None:
    """Variables that contain the run's identity keep their values, so that later steps are taken over, too."""
    project.say("*", text="The lantern was dark.")
    document = flows.recipe(
        flows.step("first", agent="writer", prompt="Write of {{session.id}}.", output="one"),
        flows.step("second", agent="writer", prompt="Go on: {{one}}", output="two"),
        flows.step("third", agent="editor", prompt="Mend: {{two}}"),
    )
    project.write(".control-room/recipes/amplifier/small.yaml", json.dumps(document))
    async with served.in_process(project) as service:
        source = await service.run("small")
        fork, lines = await forked(service, source["run_id"], **{"from": "third"})
        changed, changed_lines = await forked(service, source["run_id"], **{"from": "second", "prompt": "Be brief."})

    assert (source["status"], fork["status"], changed["status"]) == ("done",) * 3, (source["error"], fork["error"])
    assert [line["key"] for line in lines if line.get("taken_over")] == ["first", "second"]
    assert [line["key"] for line in changed_lines if line.get("taken_over")] == ["first"]


async def test_a_workflow_of_orchestrate(project: Project) -> None:
    """Programs before the step do not run again; the fork has a run folder of its own."""
    count = f"{sys.executable} -c \"open('ran','a').write('x')\""
    document = {
        "version": "1.1",
        "name": "count",
        "steps": [
            {"name": "One", "command": ["sh", "-c", count]},
            {"name": "Two", "command": ["sh", "-c", count + " && echo ${run.id}"], "output_capture": "text"},
            {"name": "Three", "command": ["sh", "-c", count]},
        ],
    }
    project.write(".control-room/recipes/orchestrate/count.yaml", json.dumps(document))
    async with served.in_process(project) as service:
        source = await service.run("count")
        fork, lines = await forked(service, source["run_id"], **{"from": "Three"})
        state = json.loads((project.data / "runs" / fork["run_id"] / "state.json").read_text())

    assert (source["status"], fork["status"]) == ("done", "done"), (source["error"], fork["error"])
    assert [line["key"] for line in lines if line.get("taken_over")] == ["One", "Two"]
    assert (project.root / "ran").read_text() == "x" * 4
    assert state["run_id"] == fork["run_id"]


async def test_a_run_in_a_foreign_conversation_cannot_be_forked(project: Project) -> None:
    """A run in a conversation that other runs began cannot be forked, since the fork would not know its beginning."""
    project.write(".control-room/recipes/agent_recipes/small.json", json.dumps(machines.recipe()))
    for name, outcome in (("review", "no-issues"), ("commit", "committed")):
        project.say(name, text=machines.says(outcome))
    async with served.in_process(project) as service:
        first = await service.run("small", args={"backend": "said"})
        args = {"backend": "said", "agent_session_id": first["machine"]["sessionId"]}
        second = await service.run("small", args=args)
        answer = await service.http.post(f"/api/runs/{second['run_id']}/fork", json={})

    assert second["status"] == "done", second["error"]
    assert (answer.status_code, answer.json()["code"]) == (409, "conversation_shared")
