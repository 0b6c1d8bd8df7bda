"""Golden journals: recorded runs that every later driver must repeat.

Record the missing ones with `.venv/bin/python -m tests.replay.golden`. An existing journal is never written again: it
represents the unfinished runs of users. A driver that asks for something else gets a new `driver_version`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from app.domain import plain, records, runs
from app.domain.states import RunState
from app.engine import step_rules
from tests import example_project
from tests.unit.dialects import bench, example, prompting
from tests.unit.dialects.agent_recipes import recipe_harness
from tests.unit.dialects.agent_recipes.recipe_harness import Play, says
from tests.unit.dialects.amplifier import recorded as amplifier
from tests.unit.dialects.orchestrate import shows
from tests.unit.engine import logs
from tests.unit.flows.conference import round_table
from tests.unit.flows.decomposition import splitting
from tests.unit.flows.review import reviewing
from tests.unit.flows.session_plan import scripted

FOLDER = Path(__file__).parent


class Recordable(Protocol):
    """A run whose disk is made of lists."""

    disk: logs.Disk

    async def run(self) -> RunState:
        """Continue the run until it rests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """A recorded run."""

    name: str
    """Dialect and file name without its ending."""
    start: runs.RunStart
    """The start of the run, with all the data that its driver reads."""
    lines: tuple[Mapping[str, Any], ...]
    """The journal of the run."""
    blobs: Mapping[str, str]
    """Contents over 64 kB, by hash."""
    ended: Mapping[str, Any]
    """The ending of the run: status, causes, error, ending."""
    manifest: Mapping[str, Any]
    """The final content of run.json."""
    slots: Mapping[str, Any]
    """The final content of cache.json."""

    def records(self) -> list[records.Record]:
        """Return the parsed records of the journal."""
        return [records.read(position, line) for position, line in enumerate(self.lines)]


def names() -> list[str]:
    """Return the names of all recorded runs."""
    return sorted(f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.json"))


def load(name: str) -> Golden:
    """Return a recorded run."""
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


def _of_version(version: int, make: Callable[[Path], Recordable]) -> Callable[[Path], Recordable]:
    def made(project: Path) -> Recordable:
        pipeline = make(project)
        pipeline.disk.start = dataclasses.replace(pipeline.disk.start, driver_version=version)
        return pipeline

    return made


def _bundled(recipe_id: str, tier: Any = None) -> Callable[[Path], bench.Pipeline]:
    return lambda project: example.pipeline(recipe_id, project, tier)


def _closing(project: Path) -> bench.Pipeline:
    document = bench.recipe(
        outputs=[{"slot": "prose", "path": "Drafts/{{task.run_id}}.md", "overwrite": True}],
        findings={"$ref": "found.files"},
        dod=[{"check": "slot_field_equals", "slot": "text", "field": "pass", "expected": True}],
    )
    return bench.Pipeline(document)


def _second_path(project: Path) -> bench.Pipeline:
    output = {"slot": "prose", "path": "scene.md", "otherwise": "Drafts/{{task.run_id}}.md"}
    check = {"check": "file_exists", "path": {"$ref": "task.outputs.prose"}}
    pipeline = bench.Pipeline(bench.recipe(outputs=[output], dod=[check]))
    pipeline.tables.files["scene.md"] = "written before"
    return pipeline


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


def _evidence(project: Path) -> bench.Pipeline:
    steps = [dict(step) | {"evidence": True} for step in bench.RECIPE["phase_b"]]
    prompts = {"write": {"t1": "--- triage\nLook.\n--- finding\n{{plan}}\n--- evidence\nProve it."}}
    registry = bench.stock(prompts, {"writer": "t1"}, evidence="any")
    pipeline = bench.Pipeline(bench.recipe(phase_b=steps), registry)
    pipeline.tables.replies["brief"] = 'Go on.\n\nEvidence: "one two" (a.md)'
    pipeline.tables.replies["draft.evidence"] = "Evidence: receipt_id: rcpt_1"
    return pipeline


def _no_evidence(project: Path) -> bench.Pipeline:
    steps = [dict(step) | {"evidence": True} for step in bench.RECIPE["phase_b"]]
    return bench.Pipeline(bench.recipe(phase_b=steps), bench.stock(evidence="receipt"))


LOOP = {"review": says("issues-found"), "fix": says("complete"), "review#2": says("no-issues")}
COMMITTED = {"commit": says("committed")}
REMINDED = {
    "review": 'Done.\n{"outcome": "perfect"}',
    "review.reminder": says("issues-found"),
    "fix": 'Done.\n{"outcome": "\\ud800"}',
    "fix.reminder": says("complete"),
    "review#2": says("no-issues"),
    **COMMITTED,
}
COST = {"usage": {"input_tokens": 900, "output_tokens": 80, "cost_usd": 0.125}}
LONG = "".join(f"Line {number} of it is fine. " for number in range(4_000))
PUZZLED = '{"outcome": "other", "otherDescription": "there is nothing to review"}'


def _play(made: Any, script: Mapping[str, Any], **args: Any) -> Callable[[Path], Play]:
    # The folder contains the project; it leaves no trace in the run.
    return lambda project: Play(project.parent, made, script, args)


def _in_turn(project: Path) -> Play:
    other = {**recipe_harness.RECIPE, "id": "other", "initialStep": "commit", "model": "opus"}
    leading = json.loads(json.dumps(recipe_harness.AGAIN).replace('"small"', '"other"'))
    script = {**LOOP, **COMMITTED, "restart1/commit": says("committed")}
    document = recipe_harness.recipe(steps={**recipe_harness.RECIPE["steps"], "commit": leading})
    return Play(project.parent, document, script, others=(recipe_harness.parsed(other),))


def _tasks(project: Path) -> Play:
    script = {"*implement": {"text": says("complete"), **COST}, "restart2/implement": says("no-tasks")}
    script |= {"*code-review": says("no-issues"), "*fix": says("complete"), "*commit": says("committed")}
    script |= {"restart1/code-review": says("issues-found"), "restart1/code-review#2": "Fine now."}
    script |= {"restart1/code-review#2.reminder": says("no-issues")}
    return Play(project.parent, recipe_harness.bundled("implement-and-review-all"), script)


def _long_reply(project: Path) -> Play:
    script = {"review": LONG, "review.reminder": says("no-issues", LONG), **COMMITTED}
    return Play(project.parent, recipe_harness.RECIPE, script)


def _prompted(reply: Any, **args: Any) -> Callable[[Path], prompting.Prompted]:
    return lambda project: prompting.Prompted(project.parent, reply, **args)


def _split(said: Any, corrected: Any = None, tier: Any = "t3", **facts: Any) -> Callable[[Path], splitting.Split]:
    return lambda project: splitting.Split(
        project.parent, said, corrected, definition_cache=splitting.stock(tier), **facts
    )


def _review(*said: Any, **facts: Any) -> Callable[[Path], reviewing.Reviewed]:
    return lambda project: reviewing.Reviewed(project.parent, *said, **facts)


NOT_FOUND = splitting.Tool(step_rules.failed("tool_timeout", "It took too long."))

DECOMPOSITIONS: Mapping[str, Callable[[Path], Recordable]] = {
    "planned": _split({"text": splitting.REPLY, **COST}),
    "rich": _split(splitting.REPLY, tier="t5"),
    "small": _split(splitting.SMALL_REPLY, tier="t1"),
    "nothing_found": _split(splitting.REPLY, tool=NOT_FOUND),
    "corrected": _split({"text": "Gladly!", **COST}, splitting.REPLY),
    "invalid": _split("Gladly!", splitting.reply(splitting.task(1, 1))),
    "broken_chief": _split({"error": {"code": "agent_error", "message": "no credit"}}),
    "long_reply": _split(LONG, splitting.REPLY),
}

PIPELINES: Mapping[str, Callable[[Path], bench.Pipeline]] = {
    **{f"control_room/{recipe_id}": _bundled(recipe_id) for recipe_id in example.TABLE},
    "control_room/micro_steps": _bundled("analytical_consistency", "t1"),
    "control_room/rich_prompts": _bundled("creative_draft_scene", "t5"),
    "control_room/outputs_and_findings": _closing,
    "control_room/long_texts": _long_texts,
    "control_room/second_path": _second_path,
    "control_room/broken_reference": _broken_reference,
    "control_room/failed_agent": _failed_agent,
    "control_room/not_done": _not_done,
    "control_room/evidence": _evidence,
    "control_room/no_evidence": _no_evidence,
}
"""Runs that the first driver of control_room began."""

MADE: Mapping[str, Callable[[Path], Recordable]] = {
    **{name: _of_version(1, make) for name, make in PIPELINES.items()},
    "control_room/analytical_consistency_2": _of_version(2, _bundled("analytical_consistency")),
    "control_room/outputs_and_findings_2": _of_version(2, _closing),
    "control_room/not_done_2": _of_version(2, _not_done),
    "control_room/not_done_3": _not_done,
    "agent_recipes/loop": _play(
        recipe_harness.RECIPE, {**LOOP, **COMMITTED}, model="sonnet", system_prompt="Be brief."
    ),
    "agent_recipes/other": _play(recipe_harness.RECIPE, {"review": PUZZLED}, agent_session_id="ses_1"),
    "agent_recipes/visits": _play(recipe_harness.RECIPE, {"review*": says("issues-found"), "fix*": says("complete")}),
    "agent_recipes/total": _play(recipe_harness.RECIPE, LOOP, max_steps=3),
    "agent_recipes/no_outcome": _play(recipe_harness.RECIPE, {"review": "Fine.", "review.reminder": "{}"}),
    "agent_recipes/broken_agent": _play(
        recipe_harness.RECIPE, {"review": {"error": {"code": "agent_exited", "message": "It died."}}}
    ),
    "agent_recipes/long_reply_2": _long_reply,
    "agent_recipes/reminded_2": _of_version(2, _play(recipe_harness.RECIPE, REMINDED)),
    "agent_recipes/in_turn": _in_turn,
    "agent_recipes/tasks": _tasks,
    **{f"conference/{name}_2": _of_version(2, round_table.recorded(*run)) for name, run in round_table.RUNS.items()},
    "conference/forged_3": round_table.recorded({"allowed_tools": []}, {"opinion.critic": round_table.FORGED}),
    **{f"decomposition/{name}_2": _of_version(2, made) for name, made in DECOMPOSITIONS.items()},
    **{f"decomposition/{name}_3": DECOMPOSITIONS[name] for name in ("planned", "rich", "small", "corrected")},
    "prompt/answered": _prompted({"text": "Hello.", **COST}),
    "prompt/chosen": _prompted("Again.", session_created=True, model="haiku", system_prompt="Be kind."),
    "prompt/long_reply_2": _prompted(LONG),
    "prompt/broken_agent": _prompted({"error": {"code": "agent_error", "message": "no credit"}}),
    **{f"amplifier/{name}": amplifier.made(name) for name in amplifier.RUNS},
    "orchestrate/queue": lambda project: shows.queue(),
    "orchestrate/failing": lambda project: shows.failing(),
    "orchestrate/names": lambda project: shows.names(),
    "orchestrate/names_3": lambda project: shows.names(3),
    "session_plan/tasks": lambda project: scripted.Scripted(scripted.DRAFT, *scripted.CHANGES, *scripted.DELETED),
    "session_plan/chief": lambda project: scripted.Scripted(scripted.ASKED, *scripted.FOUND, *scripted.DELETED),
    "session_plan/reviewed": lambda project: scripted.Scripted(scripted.IN_WORDS, *scripted.REVIEWS, *scripted.DELETED),
    "review/met": _review({"text": reviewing.said(), **COST}),
    "review/corrected": _review("Gladly!", reviewing.said("not_met"), tier="t5"),
    "review/unsure": _review(
        reviewing.said("unsure", None, proposals=[{"kind": "remove_task", "task": 2, "why": "x"}])
    ),
    "review/broken_chief": _review({"error": {"code": "agent_error", "message": "no credit"}}),
    "review/person": _review(decision="not_met", person="no chief may judge"),
    "session_plan/continued": lambda project: scripted.Scripted(scripted.DRAFT, {"kind": "continue"}),
}
"""Every recorded run, and how it was made."""


KEPT = frozenset(
    {
        "agent_recipes/long_reply",
        "prompt/long_reply",
        *(f"conference/{name}" for name in round_table.RUNS),
        *(f"decomposition/{name}" for name in DECOMPOSITIONS),
    }
)
"""Runs of earlier versions that are not recorded any more.

Their drivers have changed, or their replies would count as degenerate.
"""


async def record(name: str, project: Path) -> dict[str, Any]:
    """Execute a run and return the content of its golden file."""
    made = MADE[name](project)
    await made.run()
    disk = made.disk
    start = disk.start.to_json() | {"working_dir": "/workspace", "recipe_id": disk.start.recipe_id}
    ended = json.loads(disk.control[-1])
    return {
        "start": start,
        "steps": [json.loads(line) for line in disk.steps],
        "blobs": {digest: content.decode() for digest, content in disk.blobs.items()},
        "ended": {field: ended[field] for field in ("status", "causes", "error", "ending")},
        "run.json": disk.files["run.json"] | {"working_dir": "/workspace"},
        "cache.json": disk.files["cache.json"],
    }


def _write_missing() -> None:
    for name in MADE.keys() - set(names()):
        with tempfile.TemporaryDirectory() as folder:
            project = example_project.copy(Path(folder) / "project")
            recorded = asyncio.run(record(name, project))
        text = json.dumps(plain.plain(recorded), indent=1, ensure_ascii=False)
        assert folder not in text
        (FOLDER / name).parent.mkdir(exist_ok=True)
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    _write_missing()
