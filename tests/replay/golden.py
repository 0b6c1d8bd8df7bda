"""
Golden journals: recorded runs that every later driver must repeat.

Record the missing ones with `.venv/bin/python -m tests.replay.golden`. A journal that is there is never written
again: it stands for the unfinished runs of users. A driver that asks for something else gets a new `driver_version`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.engine import plain, records, runs
from tests.unit.dialects import bench, example

FOLDER = Path(__file__).parent / "control_room"


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """
    A recorded run.
    """

    name: str
    """File it stands in, without ending."""
    start: runs.RunStart
    """What the run began with, everything that its driver reads included."""
    lines: tuple[Mapping[str, Any], ...]
    """Its journal."""
    blobs: Mapping[str, str]
    """Contents over 64 kB, by hash."""
    ended: Mapping[str, Any]
    """Its ending: status, causes, error, ending."""
    manifest: Mapping[str, Any]
    """run.json at the end."""
    slots: Mapping[str, Any]
    """cache.json at the end."""

    def records(self) -> list[records.Record]:
        """
        Return the journal, read.
        """
        return [records.read(position, line) for position, line in enumerate(self.lines)]


def names() -> list[str]:
    """
    Return the names of all recorded runs.
    """
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> Golden:
    """
    Return a recorded run.
    """
    found = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return Golden(
        name=name,
        start=runs.RunStart.from_json(found["start"]),
        lines=tuple(found["steps"]),
        blobs=found["blobs"],
        ended=found["ended"],
        manifest=found["run.json"],
        slots=found["cache.json"],
    )


def _bundled(recipe_id: str, tier: Any = None) -> Callable[[Path], bench.Pipeline]:
    return lambda project: example.pipeline(recipe_id, project, tier)


def _closing(project: Path) -> bench.Pipeline:
    document = bench.recipe(
        outputs=[{"slot": "prose", "path": "Drafts/{{task.run_id}}.md", "overwrite": True}],
        findings={"$ref": "found.files"},
        dod=[{"check": "slot_field_equals", "slot": "text", "field": "pass", "expected": True}],
    )
    return bench.Pipeline(document)


def _long_texts(project: Path) -> bench.Pipeline:
    pipeline = bench.Pipeline(bench.recipe(outputs=[{"slot": "plan", "path": "plan.md"}]))
    pipeline.tables.payloads["finder"] = {"files": [{"path": "far.md"}], "filler": "x" * 70_000}
    pipeline.tables.replies["brief"] = "long " * 14_000
    return pipeline


def _broken_reference(project: Path) -> bench.Pipeline:
    pipeline = bench.Pipeline(bench.recipe())
    pipeline.tables.payloads["finder"] = {"files": []}
    return pipeline


def _failed_agent(project: Path) -> bench.Pipeline:
    pipeline = bench.Pipeline(bench.recipe())
    pipeline.tables.failing = {"draft"}
    return pipeline


def _not_done(project: Path) -> bench.Pipeline:
    checks = [
        {"check": "slot_field_equals", "slot": "text", "field": "pass", "expected": False},
        {"check": "file_exists", "path": "none.md"},
        {"check": "file_exists", "path": {"$ref": "found.none"}},
    ]
    return bench.Pipeline(bench.recipe(dod=checks))


MADE: Mapping[str, Callable[[Path], bench.Pipeline]] = {
    **{recipe_id: _bundled(recipe_id) for recipe_id in example.TABLE},
    "micro_steps": _bundled("analytical_consistency", "t1"),
    "rich_prompts": _bundled("creative_draft_scene", "t5"),
    "outputs_and_findings": _closing,
    "long_texts": _long_texts,
    "broken_reference": _broken_reference,
    "failed_agent": _failed_agent,
    "not_done": _not_done,
}
"""Every run that is recorded, and how it was made."""


async def record(name: str, project: Path) -> dict[str, Any]:
    """
    Execute a run and return it as its file holds it.
    """
    pipeline = MADE[name](project)
    await pipeline.run()
    disk = pipeline.disk
    start = disk.start.to_json() | {"working_dir": "/workspace", "recipe_id": disk.start.recipe_id}
    ended = json.loads(disk.control[-1])
    return {
        "start": start,
        "steps": pipeline.lines(),
        "blobs": {digest: content.decode() for digest, content in disk.blobs.items()},
        "ended": {field: ended[field] for field in ("status", "causes", "error", "ending")},
        "run.json": disk.files["run.json"] | {"working_dir": "/workspace"},
        "cache.json": disk.files["cache.json"],
    }


def _write_missing() -> None:
    for name in MADE.keys() - set(names()):
        with tempfile.TemporaryDirectory() as folder:
            project = Path(folder) / "project"
            shutil.copytree(example.ROOT / ".control-room" / "example", project)
            recorded = asyncio.run(record(name, project))
        text = json.dumps(plain.plain(recorded), indent=1, ensure_ascii=False)
        assert folder not in text
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    _write_missing()
