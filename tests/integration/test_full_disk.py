"""A full disk, a real one: new runs are refused, accepted runs are kept, reads work, and free space restores all."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli import root
from tests.acceptance import programs
from tests.integration import project as projects
from tests.integration import served
from tests.integration.held import DELAY_SECONDS, Held

SIZE_BYTES = 8 * 1024 * 1024
LONG = " ".join(f"Lamp {number} was lit." for number in range(1_000))
ARRIVAL = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}


class SmallDisk:
    """A file system of a few megabytes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ballast = root / "ballast"

    def fill(self) -> None:
        """Use up all free bytes."""
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 4096)

    def change(self, how: str) -> None:
        """Remount the disk read-only (`ro`) or writable (`rw`)."""
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.root)], check=True)

    def free(self) -> None:
        """Free the space again."""
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Return a small disk; skip the test if it cannot be mounted."""
    root = tmp_path / "disk"
    root.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(root)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], check=False, capture_output=True).returncode != 0:
        pytest.skip("a small tmpfs needs root and a kernel that allows mounts")
    try:
        yield SmallDisk(root)
    finally:
        subprocess.run(["umount", str(root)], check=True)


async def test_a_full_disk_refuses_new_runs_and_loses_none(disk: SmallDisk) -> None:
    """With a full disk a start is a 507 and finished runs can be read; with free space a start is accepted again."""
    project = projects.Project(disk.root / "project")
    async with served.in_process(project) as service:
        before = await service.run("draft", args=ARRIVAL)
        disk.fill()
        refused = await service.http.post("/api/runs", json={"recipe_id": "quick"})
        shown = await service.show(before["run_id"])
        listed = (await service.http.get("/api/runs")).json()
        ready = await service.http.get("/readyz")
        disk.free()
        after = await service.run("quick")

    assert (refused.status_code, refused.json()["code"]) == (507, "no_room")
    assert shown["status"] == "done"
    assert [row["run_id"] for row in listed] == [before["run_id"]]
    assert (ready.status_code, ready.json()["code"]) == (503, "disk_failing")
    assert after["status"] == "done"


async def test_a_run_that_meets_a_full_disk_waits_for_room(disk: SmallDisk, held: Held) -> None:
    """A run whose result cannot be written is parked with the reason, and continues by itself once there is space."""
    project = projects.Project(disk.root / "project")
    text = "\n".join(f"{number * 7919 % 9973} {projects.REPLY}" for number in range(200))
    project.say("draft", text=text, delay_seconds=DELAY_SECONDS)
    async with served.in_process(project) as service:
        run_id = await service.start("draft", args=ARRIVAL)
        await service.until(run_id, step="draft")
        disk.fill()
        held.release()
        parked = await service.until(run_id, "paused", "failed", "done")
        disk.free()
        ended = await service.until(run_id, "done", "failed")
        log = (await service.http.get(f"/api/runs/{run_id}/steps")).json()

    assert (parked["status"], parked["error"]["code"]) == ("paused", "storage_error")
    assert ended["status"] == "done"
    assert [(step["step_id"], step["attempt"]) for step in log][:4] == [
        ("discover", 1),
        ("analyze", 1),
        ("draft", 1),
        ("polish", 1),
    ]


async def test_an_order_that_cannot_be_written_changes_nothing(disk: SmallDisk) -> None:
    """An order that cannot be written is a 507; once there is space, the run takes orders again."""
    project = projects.Project(disk.root / "project")
    project.say("draft", hang=True)
    async with served.in_process(project) as service:
        run_id = await service.start("draft", args=ARRIVAL)
        await service.until(run_id, step="draft")
        disk.fill()
        refused = await order_until_refused(service, run_id)
        disk.free()
        answered = await service.http.post(f"/api/runs/{run_id}/cancel")
        ended = await service.until(run_id, "cancelled", "done", "failed")

    assert (refused.status_code, refused.json()["code"]) == (507, "no_room")
    assert (answered.status_code, ended["status"]) == (200, "cancelled")


@pytest.mark.parametrize("used", [True, False])
def test_a_command_names_the_full_folder_and_the_remedy(
    disk: SmallDisk, capsys: pytest.CaptureFixture[str], used: bool
) -> None:
    """A command on a full disk names the full folder and the remedy, before it changes a file."""
    project = projects.Project(disk.root / "project")
    place = ["--project", str(project.root)]
    if used:
        assert root.execute(["run", "quick", *place]) == 0
    disk.fill()
    capsys.readouterr()
    told = dict[str, str]()
    for command in (["run", "quick"], ["recipes", "list"], ["plan", "create", "sweep"], ["config", "check"]):
        # A command that only reads does not write.
        looks_only = command[0] == "recipes"
        assert root.execute([*command, *place]) == (0 if looks_only else 5)
        said = "".join(capsys.readouterr())
        told |= {} if looks_only else {command[0]: said}
    disk.free()
    ended = root.execute(["run", "quick", *place])

    checked = told.pop("config")
    assert "CONTROL_ROOM_DATA_DIRECTORY" in checked
    assert "has no space left on its disk" in checked
    for line in told.values():
        assert str(project.root / ".control-room") in line
        assert line.endswith("no space is left on its disk; make room there, then repeat the command [no_room]\n")
    assert ended == 0


async def order_until_refused(service: served.Served, run_id: str) -> httpx.Response:
    """Pause and unpause until the last page of the journal is full, and return the first refusal."""
    for verb in itertools.islice(itertools.cycle(("pause", "unpause")), 100):
        answer = await service.http.post(f"/api/runs/{run_id}/{verb}")
        if answer.status_code != 200:
            return answer
    raise AssertionError("the disk is not full")


async def test_a_full_workspace_is_waited_for(disk: SmallDisk, tmp_path: Path) -> None:
    """If only the workspace is full, the run waits with its paid text, names the path, and later writes the file."""
    project = projects.Project(tmp_path / "project")
    recipe = projects.draft("written") | {"outputs": [{"slot": "edited_draft", "path": "Drafts/scene.md"}]}
    project.add_recipe(recipe)
    project.say("polish", text=LONG)
    workspace = disk.root / "workspace"
    (workspace / "Drafts").mkdir(parents=True)
    (workspace / "scene.md").write_text(projects.SCENE)
    disk.fill()
    async with served.in_process(project, allowed_roots=[workspace]) as service:
        body = {"args": {"scene_path": "scene.md"}, "working_dir": str(workspace)}
        run_id = await service.start("written", **body)
        waits = await service.until(run_id, "paused", "failed", "done")
        disk.free()
        ended = await service.until(run_id, "failed", "done")
        log = (await service.http.get(f"/api/runs/{run_id}/steps")).json()

    assert (waits["status"], waits["error"]["code"]) == ("paused", "storage_error")
    assert waits["error"]["detail"] == {
        "file": "Drafts/scene.md", "errno": "ENOSPC", "error": "No space left on device",
    }  # fmt: skip
    assert ended["status"] == "done", ended["error"]
    assert (workspace / "Drafts" / "scene.md").read_text() == LONG
    assert [line["attempt"] for line in log] == [1] * len(log)


async def test_a_command_waits_for_its_output_file(disk: SmallDisk, tmp_path: Path) -> None:
    """A command waits until its output file can be created, and then runs once."""
    project = projects.Project(tmp_path / "project")
    steps = {
        "name": "Say",
        "command": ["sh", "-c", f"echo begun >> {tmp_path}/begun; echo said"],
        "output_file": "a/b/said.txt",
    }
    document = {"version": "1.3", "name": "say", "steps": [steps]}
    project.write(".control-room/recipes/orchestrate/say.yaml", json.dumps(document))
    workspace = disk.root / "workspace"
    workspace.mkdir()
    disk.change("ro")
    async with served.in_process(project, allowed_roots=[workspace]) as service:
        run_id = await service.start("say", working_dir=str(workspace))
        waits = await service.until(run_id, "paused", "failed", "done")
        disk.change("rw")
        ended = await service.until(run_id, "failed", "done")

    assert (waits["status"], waits["error"]["code"]) == ("paused", "storage_error"), waits["error"]
    assert ended["status"] == "done", ended["error"]
    assert (workspace / "a" / "b" / "said.txt").read_text() == "said\n"
    assert (tmp_path / "begun").read_text() == "begun\n"


@pytest.mark.slow
def test_a_killed_service_continues_a_command_once_a_full_disk_has_room(disk: SmallDisk, tmp_path: Path) -> None:
    """A command cut off with its service waits on a full disk instead of being cut off too often, and then ends."""
    project = programs.make_project(disk.root / "project")
    begun, held = tmp_path / "begun", tmp_path / "held"
    for pipe in (begun, held):
        os.mkfifo(pipe)
    steps = [{"id": "wait", "type": "bash", "command": f"echo begun >> {begun}; cat {held}"}]
    document = {"schema": "1.7", "name": "waits", "description": "d", "version": "1.0.0", "steps": steps}
    project.write("recipes/amplifier/waits.yaml", document)
    with programs.service(project) as killed:
        run_id = killed.start_run(recipe_id="waits", args={})
        assert begun.read_text() == "begun\n"
        disk.fill()
    for pipe in (begun, held):
        pipe.unlink()
        pipe.touch()
    with programs.service(project) as service:
        parked = service.wait(run_id, "paused", "failed", "done")
        assert (parked["status"], parked["error"]["code"]) == ("paused", "storage_error"), parked["error"]
        disk.free()
        ended = service.wait_until(run_id, is_settled)
        # Stopped, so that nothing of it uses the disk any more.
        service.stop()

    assert parked["error"]["detail"]["errno"] == "ENOSPC"
    assert ended["status"] == "done", ended["error"]
    assert begun.read_text() == "begun\n"


def is_settled(run: Mapping[str, Any]) -> bool:
    """Return whether a run has ended, or is parked for another reason than the disk."""
    code = (run["error"] or {}).get("code", "storage_error")
    return run["status"] in ("done", "failed") or (run["status"] == "paused" and code != "storage_error")
