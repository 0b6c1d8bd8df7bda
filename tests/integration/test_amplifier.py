"""Amplifier recipes over HTTP: bundled and own recipes, real commands, runs within runs, approvals."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration import served
from tests.integration.project import Project
from tests.unit.dialects.amplifier import recipe_harness
from tests.unit.dialects.amplifier.recipe_harness import later, recipe, staged, step

OWN = ".control-room/recipes/amplifier"
EXAMPLES = {path.stem for path in (recipe_harness.ROOT / "recipes" / "amplifier").glob("*.yaml")}


def _asks(id: str = "a", **more: Any) -> dict[str, Any]:
    return step(id, **{"agent": "writer", **more})


def _write(project: Project, document: dict[str, Any]) -> Path:
    return project.write(f"{OWN}/{document['name']}.yaml", json.dumps(document))


async def _run(service: served.Served, document: dict[str, Any], **args: Any) -> dict[str, Any]:
    _write(service.project, document)
    return await service.run(document["name"], args=args)


def _lines(shown: dict[str, Any]) -> dict[str, str]:
    return {line["key"]: line["status"] for line in shown["steps"]}


async def _slot(service: served.Served, shown: dict[str, Any], name: str) -> Any:
    return (await service.http.get(f"/api/runs/{shown['run_id']}/cache/{name}")).json()["text"]


async def _resume(service: served.Served, shown: dict[str, Any], **body: Any) -> Any:
    answer = await service.http.post(f"/api/runs/{shown['run_id']}/resume", json=body)
    if answer.status_code != 200:
        return answer
    return await service.until(shown["run_id"], "done", "failed")


async def test_the_examples_are_listed(service: served.Served) -> None:
    """The bundled recipes are valid in any project, and show their arguments and graphs."""
    listed = {entry["recipe_id"]: entry for entry in (await service.http.get("/api/recipes")).json()}
    shown = (await service.http.get("/api/recipes/comprehensive-code-review")).json()

    assert set(listed) >= EXAMPLES
    assert all(listed[name]["valid"] and listed[name]["dialect"] == "amplifier" for name in EXAMPLES), listed
    assert shown["args_schema"]["required"] == ["file_path"]
    assert next(node["id"] for node in shown["graph"]["nodes"]) == "security-scan"


async def test_a_run_over_http(service: served.Served) -> None:
    """Steps, slots and progress of a run are shown; a step that its condition skips has a line."""
    service.project.say("look", text='{"severity": "high"}')
    document = recipe(
        _asks("look", prompt="Look at {{file}}.", output="seen"),
        _asks("fix", condition="{{seen.severity}} == 'critical'"),
        _asks("tell", prompt="Tell of {{seen.severity}}.", output="told"),
        name="own",
        context={"file": ""},
    )
    _write(service.project, document)
    refused = await service.http.post("/api/runs", json={"recipe_id": "own"})
    shown = await service.run("own", args={"file": "a.py"})
    session = json.loads((service.project.data / "runs" / shown["run_id"] / "session.json").read_text())

    assert (refused.status_code, refused.json()["code"]) == (400, "args_invalid")
    assert (shown["status"], shown["current_step_index"], shown["total_steps"]) == ("done", 3, 3)
    assert _lines(shown) == {"look": "done", "fix": "skipped", "tell": "done"}
    assert json.loads(await _slot(service, shown, "seen")) == {"severity": "high"}
    assert [one["id"] for one in session["skipped_steps"]] == ["fix"]


async def test_faults_have_lines(service: served.Served) -> None:
    """A broken recipe is listed with path and line of each fault; a refused start names the first fault."""
    service.project.write(
        f"{OWN}/broken.yaml",
        "name: broken\ndescription: d\nversion: 1.0.0\nsteps:\n- id: a\n  agent: nobody\n  promt: x\n",
    )
    entry = next(one for one in (await service.http.get("/api/recipes")).json() if one["recipe_id"] == "broken")
    started = await service.http.post("/api/runs", json={"recipe_id": "broken"})

    assert ("$.steps[0].promt", 7) in {(flaw["path"], flaw["line"]) for flaw in entry["flaws"]}
    assert (started.status_code, started.json()["code"]) == (400, "recipe_invalid")
    assert f"cannot be started: {entry['flaws'][0]['path']}: " in started.json()["detail"]


async def test_an_agent_that_is_not_there(service: served.Served) -> None:
    """A recipe that calls an unknown agent is refused before a step runs."""
    _write(service.project, recipe(step(agent="nobody"), name="own"))
    started = await service.http.post("/api/runs", json={"recipe_id": "own"})

    assert started.status_code == 400
    assert [flaw["code"] for flaw in started.json()["flaws"]] == ["unknown_agent"]


async def test_agents_of_the_project(project: Project) -> None:
    """A recipe can call an agent that the project describes for Amplifier, also by a namespaced name, with its role."""
    project.write(".amplifier/agents/judge.md", "---\nmeta: {name: judge}\nbackend: said\n---\nYou judge.\n")
    async with served.in_process(project) as service:
        shown = await _run(service, recipe(step("a", agent="house:judge", prompt="Judge it."), name="own"))
    prompt = (project.data / "runs" / shown["run_id"] / "logs" / "a.1.prompt.md").read_text()

    assert shown["status"] == "done", shown["error"]
    assert prompt.startswith("You judge.")
    assert prompt.rstrip().endswith("Judge it.")


@pytest.mark.parametrize(
    "value", ["$(touch pwned)", "`touch pwned`", '"; touch pwned; "', "'; touch pwned; '", "a  b\nc"]
)
async def test_values_are_never_executed(service: served.Served, value: str) -> None:
    """The value of a variable reaches a real shell as one word."""
    document = later(
        {
            "id": "a",
            "type": "bash",
            "command": "printf '%s|' {{x}} '{{x}}' # it's",
            "output": "said",
            "parse_json": False,
        },
        name="own",
        context={"x": ""},
    )
    shown = await _run(service, document, x=value)

    assert shown["status"] == "done", shown["error"]
    assert await _slot(service, shown, "said") == f"{value}|{value}|"
    assert not list(service.project.root.rglob("pwned"))


async def test_commands(service: served.Served) -> None:
    """Real commands have a folder, an environment, an exit code and data, and can fail."""
    shown = await _run(
        service,
        later(
            {
                "id": "where",
                "type": "bash",
                "command": "basename $PWD; echo $WHO",
                "cwd": "{{place}}",
                "env": {"WHO": "me"},
            }
            | {"output": "where"},
            {"id": "data", "type": "bash", "command": """echo '{"n": [1, 2]}'""", "output": "data"},
            {"id": "code", "type": "bash", "command": "exit 3", "output_exit_code": "code"},
            _asks("tell", condition="{{code}} == 3 and {{data.n.1}} > 1", prompt="{{where}}"),
            {"id": "bad", "type": "bash", "command": "exit 4"},
            name="own",
            context={"place": "Story/Scenes"},
        ),
    )

    assert await _slot(service, shown, "where") == "Scenes\nme"
    assert _lines(shown) == {"where": "done", "data": "done", "code": "done", "tell": "done", "bad": "failed"}
    assert (shown["status"], shown["error"]["code"]) == ("failed", "exit_code")


async def test_a_recipe_that_runs_an_invalid_one_is_not_started(service: served.Served) -> None:
    """A fault of a recipe below, at any depth, is reported before the first step: the run would fail there."""
    runs = [{"id": "sub", "type": "recipe", "recipe": "middle"}]
    _write(service.project, later(_asks("first"), *runs, name="parent"))
    _write(service.project, later({"id": "deep", "type": "recipe", "recipe": "broken"}, name="middle"))
    _write(service.project, later(step(agent="nobody"), name="broken"))
    started = await service.http.post("/api/runs", json={"recipe_id": "parent"})
    (shown,) = [one for one in (await service.http.get("/api/recipes")).json() if one["recipe_id"] == "parent"]

    assert (started.status_code, started.json()["code"]) == (409, "backend_not_ready")
    assert "there is no agent 'nobody'" in started.json()["detail"]
    assert (shown["valid"], shown["ready"], shown["lacks"][0]["path"]) == (True, False, "$.steps[1].recipe")


async def test_recipes_in_recipes(service: served.Served) -> None:
    """A recipe runs another one, passes it chosen values, and receives its result."""
    child = later(
        _asks("work", prompt="Work on {{target}}.", output="report"),
        name="child",
        context={"target": ""},
        final_output="report",
    )
    _write(service.project, child)
    service.project.say("work", text='{"grade": "good"}')
    shown = await _run(
        service,
        later(
            {"id": "sub", "type": "recipe", "recipe": "child", "context": {"target": "{{x}}"}, "output": "made"},
            _asks("after", prompt="It is {{made.grade}}.", output="end"),
            name="parent",
            context={"x": "y", "secret": "s"},
        ),
    )
    runs = (await service.http.get("/api/runs")).json()
    (below,) = (run for run in runs if run["recipe_id"] == "child")

    assert shown["status"] == "done", shown["error"]
    assert json.loads(await _slot(service, shown, "made")) == {"grade": "good"}
    assert below["parent_run_id"] == shown["run_id"]
    started = json.loads((service.project.data / "runs" / below["run_id"] / "start.json").read_text())
    assert started["args"] == {"target": "y"}


async def test_a_resume_that_changes_what_a_recipe_in_a_recipe_gets(service: served.Served) -> None:
    """A step that asks for another run after a resume starts one, and finds each of its runs again by what it asks."""
    check = {"id": "check", "type": "bash", "command": 'test "$wanted" = yes', "env": {"wanted": "{{target}}"}}
    _write(service.project, later(check, name="child", context={"target": ""}))
    sub = {"id": "sub", "type": "recipe", "recipe": "child", "context": {"target": "{{x}}"}}
    failed = await _run(service, later(sub, name="parent", context={"x": "no"}))
    seen = [failed, *[await _resume(service, failed, args={"x": x}) for x in ("never", "no", "yes")]]
    runs = (await service.http.get("/api/runs", params={"parent_run_id": failed["run_id"]})).json()
    lines = [(await service.http.get(f"/api/runs/{run['run_id']}/steps")).json() for run in runs]

    assert [(run["error"] or {}).get("code") for run in seen] == ["child_failed"] * 3 + [None]
    assert [run["status"] for run in runs] == ["done", "failed", "failed"]
    assert list(map(len, lines)) == [1, 1, 2]


async def test_recipes_by_their_files(service: served.Served) -> None:
    """A recipe runs another one by its file, in its own folder or below; a missing file is refused."""
    service.project.write(f"{OWN}/checks/lint.yaml", json.dumps(later(_asks("work", output="report"), name="lint")))
    _write(service.project, later(_asks("more", output="made"), name="beside"))
    shown = await _run(
        service,
        later(
            {"id": "one", "type": "recipe", "recipe": "checks/lint.yaml", "output": "linted"},
            {"id": "two", "type": "recipe", "recipe": "beside.yaml"},
            name="parent",
        ),
    )
    _write(service.project, later({"id": "one", "type": "recipe", "recipe": "../lint.yaml"}, name="lost"))
    refused = await service.http.post("/api/runs", json={"recipe_id": "lost"})

    assert (shown["status"], _lines(shown)) == ("done", {"one": "done", "two": "done"}), shown["error"]
    assert [(flaw["code"], flaw["line"]) for flaw in refused.json()["flaws"]] == [("unknown_recipe", 1)]


async def test_a_recipe_that_takes_too_long(service: served.Served) -> None:
    """When a step that runs a recipe exceeds its time limit, the step fails and the other run is cancelled."""
    _write(service.project, later({"id": "long", "type": "bash", "command": "sleep 60"}, name="slow"))
    shown = await _run(service, later({"id": "sub", "type": "recipe", "recipe": "slow", "timeout": 3}, name="parent"))
    (below,) = (run for run in (await service.http.get("/api/runs")).json() if run["recipe_id"] == "slow")
    ended = await service.until(below["run_id"], "cancelled", "done", "failed")

    assert (shown["status"], shown["error"]["code"]) == ("failed", "timeout")
    assert ended["status"] == "cancelled"


async def test_recursion_is_bounded(service: served.Served) -> None:
    """A recipe that runs itself fails at its depth limit."""
    itself = {"id": "again", "type": "recipe", "recipe": "endless"}
    shown = await _run(service, later(itself, name="endless", recursion={"max_depth": 2}))
    depths = [run["recipe_id"] for run in (await service.http.get("/api/runs")).json()]

    assert shown["status"] == "failed"
    assert depths == ["endless"] * 3


async def test_twenty_iterations_four_at_a_time(service: served.Served) -> None:
    """On the real pool at most four agents work at a time, and results keep the order of the items."""
    for number in range(20):
        service.project.say(f"each[{number}]", text=f"reply {number}", delay_seconds=0.02 * (1 + number % 3))
    looped = _asks("each", foreach="{{items}}", parallel=4, collect="all", prompt="Take {{item}}.")
    shown = await _run(service, later(looped, name="own", context={"items": list(range(20))}))
    spans = [(line["started_at"], line["completed_at"]) for line in shown["steps"]]
    most = max(sum(begun <= moment < ended for begun, ended in spans) for moment, _ in spans)

    assert shown["status"] == "done", shown["error"]
    assert json.loads(await _slot(service, shown, "all")) == [f"reply {number}" for number in range(20)]
    assert len(spans) == 20
    assert 2 <= most <= 4


async def test_a_parallel_loop_fails_fast(service: served.Served) -> None:
    """The first failure cancels agents that would never answer; a resume calls agents only for missing items."""
    for number in range(20):
        service.project.say(f"each[{number}]", text=f"reply {number}")
    service.project.say("each[5]", error={"code": "agent_error", "message": "no"}, delay_seconds=0.2)
    for number in (6, 7):
        service.project.say(f"each[{number}]", hang=True)
    looped = _asks("each", foreach="{{items}}", parallel=4, collect="all", prompt="Take {{item}}.")
    failed = await _run(service, later(looped, name="own", context={"items": list(range(20))}))
    done = {key for key, status in _lines(failed).items() if status == "done"}
    for number in (5, 6, 7):
        service.project.say(f"each[{number}]", text=f"reply {number}")
    shown = await _resume(service, failed)

    assert (failed["status"], failed["error"]["key"]) == ("failed", "each[5]")
    assert {"each[6]", "each[7]"}.isdisjoint(done)
    assert shown["status"] == "done", shown["error"]
    assert json.loads(await _slot(service, shown, "all")) == [f"reply {number}" for number in range(20)]
    living = [line["key"] for line in shown["steps"] if line["status"] == "done"]
    assert len(living) == len(set(living)) == 20


def _asking() -> dict[str, Any]:
    approval = {"required": True, "prompt": "Shall {{plan}} be done?", "timeout": 600, "default": "deny"}
    return staged(
        {"name": "look", "steps": [_asks("plan", output="plan")], "approval": approval},
        {"name": "act", "steps": [_asks("act", prompt="Do {{plan}}: {{approval.message}}", output="done")]},
        name="own",
    )


async def _asked(service: served.Served) -> tuple[str, dict[str, Any]]:
    _write(service.project, _asking())
    run_id = await service.start("own")
    await service.until(run_id, "waiting")
    (gate,) = (await service.http.get("/api/gates")).json()
    return run_id, gate


async def test_an_approval(service: served.Served) -> None:
    """A run waits for a person, and later steps receive the message of that person."""
    service.project.say("plan", text="the bridge")
    run_id, gate = await _asked(service)
    body = {"decision": "approve", "message": "be quick", "shown_sha256": gate["shown_sha256"]}
    answered = await service.http.post(f"/api/gates/{gate['gate_id']}", json=body)
    shown = await service.until(run_id, "done", "failed")
    prompt = next((service.project.data / "runs" / run_id / "logs").glob("act.1.prompt.md")).read_text()

    assert gate["prompt"] == "Shall the bridge be done?"
    assert answered.status_code == 200, answered.text
    assert list(_lines(shown)) == ["plan", "approval:look", "act"]
    assert "Do the bridge: be quick" in prompt


async def test_a_denial_is_final(service: served.Served) -> None:
    """A denied run cannot be resumed, from whichever step."""
    run_id, gate = await _asked(service)
    await service.http.post(f"/api/gates/{gate['gate_id']}", json={"decision": "deny", "message": "too early"})
    shown = await service.until(run_id, "done", "failed")
    refused = [await _resume(service, shown, **body) for body in ({}, {"from": "approval:look"}, {"from": "plan"})]
    again = await service.show(run_id)
    fork = await service.http.post(f"/api/runs/{run_id}/fork", json={})
    asked_again = await service.http.post(f"/api/runs/{run_id}/fork", json={"from": "approval:look"})
    graph = (await service.http.get(f"/api/runs/{run_id}/graph")).json()["nodes"]
    listed = (await service.http.get("/api/runs?status=failed")).json()
    stats = (await service.http.get("/api/stats")).json()
    gates = [step for step in shown["steps"] if step["key"] == "approval:look"]

    assert (shown["status"], shown["error"]["code"]) == ("failed", "approval_denied")
    assert (shown["reason"], [row["reason"] for row in listed], stats["failed"]["count"]) == ("denied", ["denied"], 0)
    assert [(step["status"], step["error"]["code"]) for step in gates] == [("failed", "approval_denied")]
    assert [node["status"] for node in graph if node["key"] == "approval:look"] == ["failed"]
    assert {name for name, why in shown["orders"].items() if why is None} == {"fork", "delete"}
    assert "denied, which is final" in shown["orders"]["resume"]
    assert (fork.status_code, fork.json()["code"], asked_again.status_code) == (409, "gate_denied", 201)
    assert "too early" in shown["error"]["message"]
    assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [(409, "gate_denied")] * 3
    assert again == shown


async def test_a_missing_variable_can_be_given(service: served.Served) -> None:
    """A run that failed at an undefined variable continues at that step once the variable is given."""
    document = recipe(
        _asks("look", output="seen"),
        _asks("fix", condition="{{seen}} == 'bad'", output="fixes"),
        _asks("tell", prompt="Fixes: {{fixes}}"),
        name="own",
    )
    failed = await _run(service, document)
    shown = await _resume(service, failed, args={"fixes": "none"})
    keys = [line["key"] for line, _ in itertools.groupby(shown["steps"])]

    assert (failed["error"]["code"], failed["error"]["key"]) == ("undefined_variable", "tell")
    assert shown["status"] == "done", shown["error"]
    assert keys.count("look") == 1


async def test_the_result_of_a_sub_recipe_keeps_its_type(service: served.Served) -> None:
    """A number stays a number for the next sub-recipe, null stays null, and a text that could be JSON stays a text."""
    counts = {"while_condition": "{{n}} < 3", "update_context": {"n": "{{_loop_iteration}}"}}
    service.project.say("fails", error={"code": "agent_error", "message": "no"})
    service.project.say("speaks", text="[1]")
    document = later(_asks("fails", on_error="continue", output="lost"), name="null", final_output="lost")
    _write(service.project, later(_asks("count", **counts), name="number", context={"n": 0}, final_output="n"))
    _write(service.project, later(_asks("speaks", parse_json=False, output="said"), name="text", final_output="said"))
    _write(service.project, document)
    takes = {"properties": {"n": {"type": "integer"}, "o": {"type": "null"}, "t": {"type": "string"}}}
    _write(service.project, later(_asks("ends", prompt="{{n}} {{o}} {{t}}"), name="takes", args_schema=takes))
    calls = [{"id": name, "type": "recipe", "recipe": name, "output": name} for name in ("number", "null", "text")]
    given = {"n": "{{number}}", "o": "{{null}}", "t": "{{text}}"}
    shown = await _run(service, later(*calls, {"id": "z", "type": "recipe", "recipe": "takes", "context": given}))

    assert shown["status"] == "done", shown["error"]


async def test_an_exclusive_recipe_refuses_a_second_run(service: served.Served) -> None:
    """With `exclusive`, a second run of a recipe is refused while the first is unfinished."""
    service.project.say("look", hang=True)
    _write(service.project, recipe(_asks("look"), name="own"))
    run_id = await service.start("own", exclusive=True)
    second = await service.http.post("/api/runs", json={"recipe_id": "own", "exclusive": True})
    await service.http.post(f"/api/runs/{run_id}/cancel")
    await service.until(run_id, "cancelled")

    assert second.status_code == 409


@pytest.mark.parametrize(
    "failing",
    [
        step(type="bash", command="echo no", parse_json=True, output="o"),
        step(type="bash", command="exit {{item}}", foreach="{{codes}}", continue_on_error=True),
    ],
    ids=["rejected", "iteration"],
)
async def test_the_graph_and_the_reason_name_the_failed_step(service: served.Served, failing: dict[str, Any]) -> None:
    """A rejected result and a failed iteration fail their node, though a command in it succeeded; `why` names them."""
    ended = await _run(service, later(failing, name="falls", context={"codes": [0, 1, 0]}))
    nodes = (await service.http.get(f"/api/runs/{ended['run_id']}/graph")).json()["nodes"]
    why = (await service.http.get(f"/api/runs/{ended['run_id']}/why")).json()
    failed, *lines = ended["ending"]["failed_steps"]
    [node] = (node for node in nodes if node["id"] == "a")

    assert (node["status"], lines) == ("failed", [f"{failed}:result"] if "parse_json" in failing else [])
    assert node["key"] in (failed, *lines)
    assert f"step {failed} failed" in why["sentence"]
