"""Runs in every state, and every way to damage a file of a run's folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.engine import maintenance_port
from app.storage.disk import os_disk
from app.storage.runs import repair
from tests.integration import project as projects
from tests.integration import served
from tests.unit.dialects.amplifier import recipe_harness as amplifier

AUTHORITY = ("start.json", "steps.jsonl", "control.jsonl")
"""Files of the authority, besides the blobs."""

STATES = ("done", "failed", "cancelled", "paused", "waiting", "interrupted")
"""States of the runs."""

SCENE = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
LONG = " ".join(f"word{number}" for number in range(12_000))


@dataclass(frozen=True)
class Runs:
    """A project whose data directory is restored before each case."""

    project: projects.Project
    """The project."""
    kept: Path
    """Copy of its data directory, used to restore it."""
    ids: dict[str, str]
    """Runs by their state."""

    def put_back(self) -> None:
        """Restore the data directory."""
        shutil.rmtree(self.project.data)
        shutil.copytree(self.kept, self.project.data, symlinks=True)

    def folder(self, state: str) -> Path:
        """Return the folder of a run."""
        return self.project.data / "runs" / self.ids[state]

    def files(self, state: str) -> list[str]:
        """Return the files of a run as they were before the damage."""
        folder = self.kept / "runs" / self.ids[state]
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def made(root: Path) -> Runs:
    """Create a run of each state, and copy the data directory as a service leaves it."""
    project = projects.Project(root / "project")
    approval = {"required": True, "prompt": "Shall it be done?"}
    stages = [{"name": "look", "steps": [amplifier.step("plan", agent="writer")], "approval": approval}]
    recipe = amplifier.staged(*stages, name="asks")
    project.write(".control-room/recipes/amplifier/asks.yaml", json.dumps(recipe))
    project.say("draft", text=LONG)
    ids = {}
    async with served.in_process(project, stop_grace_seconds=0) as service:
        ids["done"] = (await service.run("draft", args=SCENE))["run_id"]
        ids["failed"] = (await service.run("draft", args={"scene_path": "none.md"}))["run_id"]
        ids["waiting"] = await service.start("asks")
        await service.until(ids["waiting"], "waiting")
        project.say("polish", hang=True)
        for state in ("cancelled", "paused", "interrupted"):
            ids[state] = await service.start("draft", args=SCENE)
            await service.until(ids[state], step="polish")
        await service.http.post(f"/api/runs/{ids['cancelled']}/cancel")
        await service.http.post(f"/api/runs/{ids['paused']}/pause", json={"interrupt": True})
    shutil.copytree(project.data, root / "kept", symlinks=True)
    return Runs(project, root / "kept", ids)


def _lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    return damage


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return damage


def _in_place_of(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def _flipped(content: bytes, share: float) -> bytes:
    place = int(len(content) * share)
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :] if content else content


def _linked(path: Path) -> None:
    (path.parent / "elsewhere").write_bytes(b"{}\n")
    path.symlink_to("elsewhere")


WAYS: dict[str, Callable[[Path], None]] = {
    "removed": Path.unlink,
    "empty": _bytes(lambda content: b""),
    "cut in half": _bytes(lambda content: content[: len(content) // 2]),
    "cut before the last byte": _bytes(lambda content: content[:-1]),
    "last line lost": _lines(lambda lines: lines[:-1]),
    "half of the lines lost": _lines(lambda lines: lines[: len(lines) // 2]),
    "first line lost": _lines(lambda lines: lines[1:]),
    "line doubled": _lines(lambda lines: lines[:1] + lines),
    "last line doubled": _lines(lambda lines: lines + lines[-1:]),
    "lines turned round": _lines(lambda lines: lines[::-1]),
    "a byte at the beginning": _bytes(lambda content: _flipped(content, 0.01)),
    "a byte in the middle": _bytes(lambda content: _flipped(content, 0.5)),
    "a byte at the end": _bytes(lambda content: _flipped(content, 0.99)),
    "zeros at the end": _bytes(lambda content: content + bytes(4096)),
    "zeros in place of the end": _bytes(lambda content: content[: len(content) // 2] + bytes(len(content) // 2)),
    "zeros": _bytes(lambda content: bytes(len(content))),
    "no JSON": _bytes(lambda content: b"not JSON\n"),
    "another shape": _bytes(lambda content: b'{"run_id": 3}\n'),
    "no object": _bytes(lambda content: b"[]\n"),
    "deep": _bytes(lambda content: b"[" * 100_000 + b"\n"),
    "a terabyte of nothing": lambda path: os.truncate(path, 2**40),
    "a folder": _in_place_of(Path.mkdir),
    "a pipe": _in_place_of(os.mkfifo),
    "a link to nothing": _in_place_of(lambda path: path.symlink_to("nothing")),
    "a link to something else": _in_place_of(_linked),
}
"""Ways to damage a file, by their names."""


def report(runs: Runs, state: str) -> maintenance_port.Verification:
    """Return what a verification finds in the files of a run while no other process uses them."""
    return repair.verify(os_disk.OsDisk(runs.project.data), runs.ids[state])


def is_seen(runs: Runs, state: str, name: str, found: maintenance_port.Verification) -> bool:
    """Return whether a verification is right.

    It must report damage or a torn end if the content of a trusted file has changed, and must not otherwise.
    """
    tells = found["state"] == "damaged" or any(file["state"] == "torn" for file in found["files"])
    before, after = runs.kept / "runs" / runs.ids[state] / name, runs.folder(state) / name
    if not (name in AUTHORITY or name.startswith("blobs/")) or _is_same(before, after):
        return not tells
    return tells or _lacks_little(before, after)


def _is_same(before: Path, after: Path) -> bool:
    if not after.is_file() or after.is_symlink() or before.stat().st_size != after.stat().st_size:
        return False
    return before.read_bytes() == after.read_bytes()


def _lacks_little(before: Path, after: Path) -> bool:
    # The start and the release of an attempt are not always synced, and no other line shows them.
    if before.name != "control.jsonl" or after.stat().st_size > before.stat().st_size:
        return False
    if not before.read_bytes().startswith(after.read_bytes()):
        return False
    lost = before.read_bytes()[len(after.read_bytes()) :].splitlines()
    return {json.loads(line)["kind"] for line in lost} <= {"started", "released"}
