"""Labels and pins from the command line, in the folder and by a service."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance import programs


def test_runs_are_labelled_in_the_folder_and_by_a_service(tmp_path: Path) -> None:
    """Labelling has the same results in the folder and by a service, and a malformed label is refused by name."""
    project = programs.make_project(tmp_path / "project")
    with programs.service(project) as service:
        run_id = service.start_run()
        service.wait(run_id)
        there = programs.asked("runs", "label", run_id, "book=one", "old=x", "--server", service.url)
        listed = programs.asked("runs", "bulk", "label", run_id, "--set", "old-", "--pin", "--server", service.url)
    here = programs.asked("runs", "label", run_id, "book=two", project=project)
    unpinned = programs.asked("runs", "unpin", run_id, project=project)
    refused = programs.control_room("runs", "label", run_id, "book", project=project, code=2)
    rows = programs.asked("runs", "list", "--label", "book=two", project=project)

    assert there == {"run_id": run_id, "labels": {"book": "one", "old": "x"}, "pinned": False}
    assert listed["refused"] == []
    assert here == {"run_id": run_id, "labels": {"book": "two"}, "pinned": True}
    assert unpinned == here | {"pinned": False}
    assert [row["run_id"] for row in rows] == [run_id]
    assert "book" in refused.stderr
