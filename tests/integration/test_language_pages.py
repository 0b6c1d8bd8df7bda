"""The first example on the page of each language runs in the folder that the page names."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration import served
from tests.integration.project import Project
from tests.unit.dialects.agent_recipes.recipe_harness import says

DOCS = Path(__file__).parents[2] / "docs" / "reference"
AGENTS = ("writer", "reviewer", "reporter")


@pytest.fixture
async def service(project: Project) -> AsyncIterator[served.Served]:
    """Return the service of a project with scripted agents."""
    agents = [{"id": name, "archetype": name, "tier": "t3"} for name in AGENTS]
    backends = {"said": {"type": "scripted", "file": "replies.json"}}
    document = {"default_backend": "said", "agents": agents, "backends": backends}
    project.write(".control-room/agents.json", json.dumps(document))
    async with served.in_process(project) as service:
        yield service


def _example(page: str, kind: str, begins: str = "") -> str:
    found: list[str] = re.findall(
        rf"^```{kind}\n({re.escape(begins)}.*?)^```", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    return found[0]


async def test_control_room(service: served.Served) -> None:
    """The smallest recipe runs; the pipeline runs with the page's prompt template, and writes its file."""
    template = _example("control_room.md", "", "Describe {{")
    listed = _example("control_room.md", "json", '{\n  "pipeline_templates"')
    service.project.write(".control-room/prompts/prompts.json", listed)
    service.project.write(".control-room/prompts/templates/describe_place.t3.md", template)
    service.project.write(".control-room/recipes/find.json", _example("control_room.md", "json"))
    pipeline = _example("control_room.md", "json", '{\n  "recipe_id": "describe_a_place"')
    service.project.write(".control-room/recipes/describe.json", pipeline)
    service.project.write("Compendium/Places/mill.md", "# The mill\n\nThe mill has a red door.\n")
    service.project.say("*", text="The mill has a red door.")
    smallest = await service.run("find_harbour")
    run = await service.run("describe_a_place", args={"place": "the mill"})

    assert smallest["status"] == "done", smallest
    assert run["status"] == "done", run
    assert (service.project.root / "Drafts" / f"{run['run_id']}.md").read_text() == "The mill has a red door."


async def test_agent_recipes(service: served.Served) -> None:
    """The smallest machine ends; the other one repeats its loop once and leaves by its exit."""
    folder = ".control-room/recipes/agent_recipes"
    service.project.write(f"{folder}/tidy.json", _example("agent_recipes.md", "json"))
    service.project.write(f"{folder}/proofread.json", _example("agent_recipes.md", "json", '{\n  "id": "proofread"'))
    outcomes = {"tidy": "complete", "read": "issues-found", "mend": "complete", "read#2": "no-issues"}
    for key, outcome in outcomes.items():
        service.project.say(key, text=says(outcome))
    smallest = await service.run("tidy")
    run = await service.run("proofread", args={"path": "README.md"})

    assert (smallest["status"], smallest["ending"]["reason"]) == ("done", "tidied")
    assert (run["status"], run["ending"]["reason"]) == ("done", "proofread")


async def test_amplifier(service: served.Served) -> None:
    """The loop collects a reply for each file, and the last step uses its variable."""
    service.project.write(
        ".control-room/recipes/amplifier/review-changes.yaml",
        _example("amplifier.md", "yaml", 'name: "review-changes"'),
    )
    service.project.say("*", text="It is fine.")
    run = await service.run("review-changes")
    answer = await service.http.get(f"/api/runs/{run['run_id']}/cache/reviews")

    assert run["status"] == "done", run
    assert json.loads(answer.json()["text"]) == ["It is fine."] * 2


async def test_orchestrate(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workflow reviews the changes of the last commit with a program of that name."""
    _commit(project, "a", "b")
    program = tmp_path / "bin" / "reviewer"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ncat > /dev/null\necho '{\"approved\": false}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    project.write("prompts/review.md", "Is it fine?\n")
    project.write(".control-room/recipes/orchestrate/review.yaml", _example("orchestrate.md", "yaml", 'version: "1.3"'))
    async with served.in_process(project) as service:
        run = await service.run("review")

    assert run["status"] == "done", run
    assert (project.root / "notes" / "0.txt").read_text() == "src/b.py needs work\n"


def _commit(project: Project, *names: str) -> None:
    git = ["git", "-C", str(project.root), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    for name in names:
        project.write(f"src/{name}.py", "x = 1\n")
        subprocess.run([*git, "add", "src"], check=True)
        subprocess.run([*git, "commit", "-qm", name], check=True)
