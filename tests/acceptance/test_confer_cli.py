"""The command `control-room confer`, in a folder and as a client of a service."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.acceptance import processes, programs
from tests.integration import conferring


@pytest.mark.parametrize("served", [False, True])
def test_a_conference_is_held_and_its_transcript_printed(tmp_path: Path, served: bool) -> None:
    """The command has the same results in the folder and through its service."""
    conferring.made(tmp_path / "project")
    if not served:
        _walk(("--project", str(tmp_path / "project")))
        return
    with programs.service(programs.Project(tmp_path / "project")) as service:
        _walk(("--server", service.url))
        detached = programs.control_room("confer", "Why?", "--no-tools", "--detach", "--server", service.url)

    assert detached.stdout.startswith("run ")


def _walk(place: tuple[str, ...]) -> None:
    said = programs.control_room("confer", "Does it hold up?", "--agent", "critic", "--agent", "writer-1", *place)
    told = programs.control_room("confer", "And now?", "--no-tools", "--json", "--label", "book=one", *place)
    keyed = ("confer", "Once?", "--agent", "critic", "--no-tools", "--idempotency-key", "k", "--json", *place)
    once, again = (json.loads(programs.control_room(*keyed).stdout) for _ in range(2))
    listed = programs.control_room("runs", "list", "--recipe", "conference", "--json", *place)
    unknown = programs.control_room("confer", "x", "--agent", "critics", *place, code=2)
    other = programs.control_room("confer", "x", "--tool", "shell", *place, code=2)
    both = programs.control_room("confer", "x", "--tool", "prose_analyzer", "--no-tools", *place, code=2)
    refused = programs.control_room("confer", "x", "--no-tools", "--require-tool", *place, code=2)
    run = json.loads(told.stdout)

    assert "done        chief#2" in said.stdout
    assert "> Does it hold up?\n\n## Evidence\n\n1. prose_analyzer" in said.stdout
    assert "### critic-1 (critic): accepted" in said.stdout
    assert "editor" not in said.stdout
    assert (run["status"], run["labels"]) == ("done", {"book": "one"})
    assert [each["verdict"] for each in run["conference"]["opinions"]] == ["accepted"] * 3
    assert run["conference"]["issue_id"].startswith("iss_")
    assert once["run_id"] == again["run_id"]
    assert len(json.loads(listed.stdout)) == 3
    assert "--agent" in unknown.stderr
    assert "--tool" in other.stderr
    assert "not both" in both.stderr
    assert "--require-tool" in refused.stderr


def test_exit_codes_are_those_of_runs(tmp_path: Path) -> None:
    """A partial conference is done, one without a valid opinion has failed, and both print the transcript."""
    project = conferring.made(tmp_path / "project")
    place = ("--project", str(project.root))
    project.say("opinion.critic-1", text="I just know.")
    partial = programs.control_room("confer", "Why?", "--no-tools", *place)
    failed = programs.control_room("confer", "Why?", "--no-tools", "--agent", "critic", *place, code=1)
    alone = programs.control_room("confer", "Why?", "--detach", *place, code=2)
    run_id = json.loads(programs.control_room("runs", "list", "--status", "failed", "--json", *place).stdout)[0][
        "run_id"
    ]
    changed = programs.control_room("runs", "resume", run_id, "--arg", "message=Why not?", *place, code=2)

    assert "### critic-1 (critic): rejected for its evidence" in partial.stdout
    assert "no_opinion" in failed.stderr
    assert "--arg" not in failed.stderr
    assert "### critic-1 (critic): rejected for its evidence" in failed.stdout
    assert "--detach needs --server" in alone.stderr
    assert "start another run" in changed.stderr
    assert "resume_unchangeable" in changed.stderr


def test_an_interrupted_conference_can_be_resumed(tmp_path: Path) -> None:
    """Ctrl-C ends a conference after its last answer, and `runs resume` asks only the agents without an answer."""
    project = conferring.made(tmp_path / "project")
    project.say("opinion.editor-1", hang=True)
    words = ("confer", "Why?", "--project", str(project.root))
    environ = programs.environment(None, CONTROL_ROOM_STOP_GRACE_SECONDS="0.2")
    process = processes.start("app", *words, environ=environ, folder=project.root)
    assert process.stdout is not None
    said = ""
    while "done        opinion.critic-1.evidence" not in said or "done        opinion.writer-1.evidence" not in said:
        said += (line := process.stdout.readline())
        assert line, said
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    run_id = said.split()[1]
    project.say("opinion.editor-1", text=conferring.QUOTED)
    resumed = programs.control_room("runs", "resume", run_id, "--project", str(project.root))
    run = json.loads(programs.control_room("runs", "show", run_id, "--json", "--project", str(project.root)).stdout)

    assert process.returncode == 130
    assert f"control-room runs resume {run_id}" in told
    assert f"run {run_id} done" in resumed.stdout
    assert {step["key"]: step["attempt"] for step in run["steps"] if step["attempt"] > 1} == {"opinion.editor-1": 2}
