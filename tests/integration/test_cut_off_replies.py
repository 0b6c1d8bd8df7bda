"""Replies that reached their length limit, in every language that calls agents."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration import served
from tests.integration.project import Project, unguarded
from tests.unit.dialects.agent_recipes import recipe_harness as machines
from tests.unit.dialects.amplifier import recipe_harness as amplifier

Write = Callable[[Project, bool], dict[str, Any]]
HALF = "Kael comes to the"
CUT = {"text": f'{HALF}\n{{"outcome": "committed"}}', "finish": "length"}


def _control_room(project: Project, keeps: bool) -> dict[str, Any]:
    document = unguarded() | {"recipe_id": "cut"}
    document["phase_b"][0] |= {"on_cut_off": "keep"} if keeps else {}
    project.add_recipe(document)
    return {"key": "draft"}


def _amplifier(project: Project, keeps: bool) -> dict[str, Any]:
    own = {"agent_config": {"on_cut_off": "keep"}} if keeps else {}
    document = amplifier.recipe(amplifier.step("draft", agent="writer", **own)) | {"name": "cut"}
    project.write(".control-room/recipes/amplifier/cut.yaml", json.dumps(document))
    return {"key": "draft"}


def _agent_recipes(project: Project, keeps: bool) -> dict[str, Any]:
    own = {"on_cut_off": "keep"} if keeps else {}
    document = machines.recipe(id="cut", initialStep="commit")
    document["steps"] = {"commit": document["steps"]["commit"] | own}
    project.write(".control-room/recipes/agent_recipes/cut.json", json.dumps(document))
    return {"key": "commit", "body": {"args": {"backend": "said"}}}


LANGUAGES = pytest.mark.parametrize("write", [_control_room, _amplifier, _agent_recipes])


@LANGUAGES
async def test_half_a_reply_fails_its_step(service: served.Served, write: Write) -> None:
    """Run, step and journal line name the same reason, and the line shows how the reply ended."""
    made = write(service.project, False)
    service.project.say(made["key"], **CUT)
    shown = await service.run("cut", **made.get("body", {}))
    line = (await service.http.get(f"/api/runs/{shown['run_id']}/steps")).json()[-1]

    assert (shown["status"], shown["error"]["code"], shown["error"]["key"]) == ("failed", "reply_cut_off", made["key"])
    assert (line["status"], line["error"]["code"], line["finish"]) == ("failed", "reply_cut_off", "length")


@LANGUAGES
async def test_half_a_reply_that_is_kept_makes_the_ending_partial(service: served.Served, write: Write) -> None:
    """If the step keeps a cut-off reply, the run ends partially and names the step; a whole reply is not named."""
    made = write(service.project, True)
    service.project.say(made["key"], **CUT)
    cut = await service.run("cut", **made.get("body", {}))
    service.project.say(made["key"], text=CUT["text"])
    whole = await service.run("cut", **made.get("body", {}))

    assert (cut["status"], cut["ending"]["partial"], cut["ending"]["cut_off_steps"]) == ("done", True, [made["key"]])
    assert next(step for step in cut["steps"] if step["key"] == made["key"])["finish"] == "length"
    assert (whole["status"], whole["ending"]["partial"]) == ("done", False)
    assert cut["ending"]["reason"] == (
        "reply_cut_off" if whole["ending"]["reason"] == "completed" else "changes-committed"
    )


async def test_a_step_overrides_its_agents_cut_off_setting(project: Project) -> None:
    """A setting of the step for cut-off replies overrides the agent's, and its output limit reaches the backend."""
    agents = json.loads((project.data / "agents.json").read_text(encoding="utf-8"))
    for agent in agents["agents"]:
        agent |= {"on_cut_off": "keep", "max_output_tokens": 77}
    project.write(".control-room/agents.json", json.dumps(agents))
    strict = unguarded() | {"recipe_id": "strict"}
    strict["phase_b"][0] |= {"on_cut_off": "fail", "max_output_tokens": 8}
    project.add_recipe(strict)
    project.say("draft", **CUT)
    async with served.in_process(project) as service:
        kept, failed = await service.run("unguarded"), await service.run("strict")
        limits = [await _limit(service, run) for run in (kept, failed)]

    assert (kept["status"], kept["ending"]["reason"]) == ("done", "reply_cut_off")
    assert (failed["status"], failed["error"]["code"]) == ("failed", "reply_cut_off")
    assert limits == [77, 8]


async def _limit(service: served.Served, run: dict[str, Any]) -> int:
    lines = (await service.http.get(f"/api/runs/{run['run_id']}/steps")).json()
    return int(next(line for line in lines if line["key"] == "draft")["operation"]["body"]["max_tokens"])


@LANGUAGES
async def test_a_prompt_that_comes_back_fails_its_step(service: served.Served, write: Write) -> None:
    """In every language, a reply that only repeats the step's instructions fails its step."""
    made = write(service.project, True)
    words = "Look at the harbour, say who waits there, and write it down."
    texts = {_control_room: ".control-room/prompts/templates/write.t3.md"}
    if write in texts:
        service.project.write(texts[write], f"{words}\n\n{{{{discovery}}}}")
    else:
        (path,) = (service.project.data / "recipes").glob("*/cut.*")
        document = json.loads(path.read_text(encoding="utf-8"))
        for step in document["steps"] if isinstance(document["steps"], list) else document["steps"].values():
            step["prompt"] = words
        path.write_text(json.dumps(document), encoding="utf-8")
    service.project.say(made["key"], text=f"Sure! {words}")
    shown = await service.run("cut", **made.get("body", {}))

    assert (shown["status"], shown["error"]["code"], shown["error"]["key"]) == (
        "failed",
        "reply_degenerate",
        made["key"],
    )
