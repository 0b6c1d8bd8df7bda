"""Parallel branches in a service that is killed, and in a run that is cancelled, with real processes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import programs
from tests.unit.dialects.amplifier.recipe_harness import later, step

ITEMS = [f"item {number}" for number in range(8)]


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project whose agents answer from a script."""
    return programs.make_project(tmp_path / "project")


def _write(project: programs.Project, document: dict[str, Any]) -> None:
    project.write("recipes/amplifier/own.yaml", json.dumps({**document, "name": "own"}))


def _done(run: dict[str, Any]) -> set[str]:
    return {line["key"] for line in run["steps"] if line["status"] == "done"}


def test_a_kill_repeats_only_the_unanswered_iterations(project: programs.Project) -> None:
    """After kill -9, only the two unanswered iterations are asked again, and the results keep their order."""
    each = step("each", agent="writer", foreach="{{items}}", parallel=3, prompt="Take {{item}}.", collect="all")
    _write(project, later(each, step("after", agent="writer", prompt="{{all}}"), context={"items": ITEMS}))
    said = [{"key": f"each[{number}]", "text": f"reply {number}"} for number in range(8)]
    other = {"key": "*", "text": "said"}
    project.write("replies.json", [{"key": "each[1]", "hang": True}, {"key": "each[4]", "hang": True}, *said, other])
    answered = {f"each[{number}]" for number in (0, 2, 3, 5, 6, 7)}
    with programs.service(project) as service:
        run_id = service.start_run(recipe_id="own", args={})
        service.wait_until(run_id, lambda run: _done(run) == answered)
        service.signal(signal.SIGKILL)
        service.ended()
    project.write("replies.json", [*said, other])
    with programs.service(project) as service:
        run = service.wait(run_id)
        service.stop()
    journal = (project.data / "runs" / run_id / "steps.jsonl").read_text(encoding="utf-8").splitlines()
    attempts = {line["key"]: line["attempt"] for line in map(json.loads, journal)}
    collected = json.loads((project.data / "runs" / run_id / "cache.json").read_text())["all"]["text"]

    assert run["status"] == "done", run["error"]
    assert len(journal) == 9
    assert attempts == {**dict.fromkeys(answered, 1), "each[1]": 2, "each[4]": 2, "after": 1}
    assert json.loads(collected) == [f"reply {number}" for number in range(8)]


def test_a_failed_branch_ends_the_commands_beside_it(project: programs.Project) -> None:
    """When one of three commands fails, the processes of the other two have ended before the run's end is shown."""
    work = {
        "id": "work",
        "type": "bash",
        "foreach": "{{items}}",
        "parallel": True,
        "command": 'echo $$ > "pid-{{item}}"; [ "{{item}}" = bad ] || exec sleep 1000; '
        "while [ ! -s pid-one ] || [ ! -s pid-two ]; do sleep 0.05; done; exit 7",
    }
    _write(project, later(work, context={"items": ["one", "bad", "two"]}))
    with programs.service(project) as service:
        run = service.wait(service.start_run(recipe_id="own", args={}))
        gone = [_is_gone(project.path / f"pid-{name}") for name in ("one", "two")]
        service.stop()

    assert (run["status"], run["error"]["code"], run["error"]["key"]) == ("failed", "exit_code", "work[1]")
    assert gone == [True, True]


def test_a_cancel_ends_the_commands_of_every_branch(project: programs.Project) -> None:
    """A cancelled run leaves no process of any branch, although the branches may fail without failing the run."""
    group = {
        "id": "g",
        "parallel": True,
        "continue_on_error": True,
        "substeps": [
            {"id": name, "type": "bash", "command": f"echo $$ > pid-{name}; exec sleep 1000", "on_error": "continue"}
            for name in ("one", "two", "three")
        ],
    }
    _write(project, later(group, step("after", agent="writer")))
    files = [project.path / f"pid-{name}" for name in ("one", "two", "three")]
    with programs.service(project) as service, service.http() as http:
        run_id = service.start_run(recipe_id="own", args={})
        for name in ("one", "two", "three"):
            service.wait_until(run_id, lambda run, key=f"g.{name}": any(line["key"] == key for line in run["steps"]))
        for _ in range(600):
            if all(file.exists() and file.read_text().endswith("\n") for file in files):
                break
            tag = http.get(f"/api/runs/{run_id}").headers["ETag"]
            http.get(f"/api/runs/{run_id}", params={"wait": "0.1"}, headers={"If-None-Match": tag})
        http.post(f"/api/runs/{run_id}/cancel")
        run = service.wait(run_id)
        gone = [_is_gone(file) for file in files]
        service.stop()

    assert run["status"] == "cancelled"
    assert gone == [True, True, True]
    assert _done(run) == set()


def _is_gone(file: Path) -> bool:
    try:
        os.kill(int(file.read_text()), 0)
    except ProcessLookupError:
        return True
    return False
