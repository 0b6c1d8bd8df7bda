"""Forks and previews from the command line, in the folder and by a service."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance import programs


def test_a_run_is_forked_in_the_folder_and_by_a_service(tmp_path: Path) -> None:
    """A fork in the folder and one by a service take over the same steps, and a dry run creates no run."""
    project = programs.make_project(tmp_path / "project")
    with programs.service(project) as service:
        run_id = service.start_run()
        service.wait(run_id)
        steps = [line["key"] for line in programs.asked("runs", "steps", run_id, "--server", service.url)]
        there = programs.asked(
            "runs", "fork", run_id, "--from", steps[-1], "--label", "take=2", "--server", service.url
        )
        shown = service.wait(there["run_id"])
        preview = programs.asked("runs", "fork", run_id, "--dry-run", "--from", "0", "--server", service.url)
        refused = programs.control_room("runs", "resume", run_id, "--dry-run", "--server", service.url, code=1)
    before = programs.asked("runs", "list", project=project)
    offline = programs.control_room("runs", "fork", run_id, "--dry-run", project=project).stdout
    unchanged = programs.asked("runs", "list", project=project)
    here = programs.asked("runs", "fork", run_id, "--from", steps[-1], project=project)
    lines = programs.asked("runs", "steps", here["run_id"], project=project)

    assert (there["forked_from"], there["taken_over"]) == (run_id, len(steps) - 1)
    assert (shown["status"], shown["labels"]["take"]) == ("done", "2")
    assert [step["action"] for step in preview["steps"]] == ["again"] * len(steps)
    assert "only a failed or cancelled run is resumed" in refused.stdout
    assert f"steps that are kept: {len(steps)}; steps that run again: 0" in offline
    assert "no step is left to perform: the run ends at once" in offline
    assert "Files are not restored" in offline
    assert before == unchanged
    assert here["status"] == "done"
    assert [line["key"] for line in lines if line.get("taken_over")] == steps[:-1]
