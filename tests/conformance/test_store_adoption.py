"""Adoption: a folder written by hand, exactly as in execution-modes, appendix A, continues as a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app import errors
from app.domain import plain
from app.domain.decisions import DecisionKind
from app.domain.states import RunState
from app.engine.stores import RunQuery
from tests.conformance import store_harness
from tests.conformance.store_harness import StoreHarness

HAND = "run_abc123"
PAYLOAD = {"matches": [{"path": "Story/Scenes/one.md"}], "count": 1}
TEXT = "Scene 21 opens with Kael arriving at the fortress."


def manifest(**facts: Any) -> dict[str, Any]:
    """Return run.json in the form of the document."""
    return {
        "run_id": HAND,
        "recipe_id": "creative_draft_scene",
        "session_id": "sess_xyz",
        "status": "running",
        "created_at": "2026-02-10T14:30:00Z",
        "updated_at": "2026-02-10T14:31:22Z",
        "completed_at": None,
        "task": {"description": "Draft scene 21", "session_plan_task_id": 1, "initial_args": {"scene_path": "x.md"}},
        "current_step_index": 2,
        "total_steps": 8,
        "phase": "a",
        "error": None,
    } | facts


def line(index: int, step_id: str, output: Any, **facts: Any) -> dict[str, Any]:
    """Return a line of steps.jsonl in the form of the document."""
    return {
        "step_index": index,
        "step_id": step_id,
        "phase": "a",
        "tool": "file_locator",
        "agent_archetype": None,
        "agent_id": None,
        "status": "done",
        "output_slot": step_id,
        "receipt_id": "rcpt_a1b2c3",
        "input_slot_refs": ["task.args"],
        "output_hash": plain.labelled_sha256(plain.content(output)),
        "output_preview": "12 files found",
        "started_at": "2026-02-10T14:30:01Z",
        "completed_at": "2026-02-10T14:30:02Z",
        "error": None,
    } | facts


LINES = [
    line(0, "discover", PAYLOAD),
    line(1, "brief", TEXT, phase="b", tool=None, agent_archetype="planner", agent_id="planner-001", receipt_id=None),
]
SLOTS = {
    "discover": {
        "type": "pointer",
        "receipt_id": "rcpt_a1b2c3",
        "sha256": plain.sha256(plain.canonical(PAYLOAD)),
        "summary": "12 files found",
    },
    "brief": {
        "type": "artifact",
        "agent_id": "planner-001",
        "text": TEXT,
        "sha256": plain.sha256(TEXT.encode()),
        "summary": "Scene brief",
    },
}


def written(
    harness: StoreHarness,
    run: dict[str, Any] | None = None,
    lines: list[dict[str, Any]] | None = None,
    slots: dict[str, Any] | None = None,
    name: str = HAND,
) -> bytes:
    """Write a folder as a person would, and return its journal."""
    files = harness.files()
    files.add_folder(f"runs/{name}")
    files.add_folder("audit/sessions/sess_xyz")
    journal = "".join(json.dumps(item, indent=None) + "\n" for item in (LINES if lines is None else lines)).encode()
    receipt = {"receipt_id": "rcpt_a1b2c3", "tool": "file_locator", "payload": PAYLOAD}
    for path, content in (
        (f"runs/{name}/run.json", json.dumps(manifest() if run is None else run, indent=2).encode()),
        (f"runs/{name}/steps.jsonl", journal),
        (f"runs/{name}/cache.json", json.dumps(SLOTS if slots is None else slots).encode()),
        ("audit/sessions/sess_xyz/tool_receipts.jsonl", json.dumps(receipt).encode() + b"\n"),
    ):
        files.write(path, content, sync=True)
    for folder in (f"runs/{name}", "runs", "audit/sessions/sess_xyz", "audit/sessions"):
        files.sync_folder(folder)
    return journal


async def test_a_handwritten_folder_is_opened_with_its_steps(harness: StoreHarness) -> None:
    """A folder written by hand is listed as unfinished, and opening it finds both steps with their outputs."""
    store = await harness.open()
    journal = written(harness)
    unfinished = [run.run_id for run in await store.list_unfinished()]
    log = await store.open(HAND)
    first, second = log.loaded.records

    assert unfinished == [HAND]
    assert (first.key, first.output, first.operation) == ("discover", PAYLOAD, "adopted")
    assert (second.key, second.output, second.receipt_id) == ("brief", TEXT, None)
    assert log.loaded.start.adopted
    assert log.loaded.start.session_id == "sess_xyz"
    assert log.loaded.decisions.status is RunState.PENDING
    assert harness.adopted[0]["task"]["initial_args"] == {"scene_path": "x.md"}
    assert harness.content("steps.jsonl.adopted", HAND) == journal
    event = next(event for event in await store.read_events(HAND) if event.type == "recovery.adopted")
    assert event.data == {"lines": 2, "dropped": 0}


async def test_an_adopted_run_is_a_run_like_any_other(harness: StoreHarness) -> None:
    """After adoption and a further step, a crash leaves all steps in one sound journal."""
    store = await harness.open()
    written(harness)
    log = await store.open(HAND)
    await log.decide(DecisionKind.TAKEN, {})
    await log.append_step(store_harness.step("draft"))
    store = await harness.crash()
    loaded = await store.read(HAND)
    told = await store.maintenance.verify(HAND)

    assert [record.key for record in loaded.records] == ["discover", "brief", "draft"]
    assert told["ok"]
    assert (await store.summary(HAND)).owner == "service"
    assert json.loads(harness.content("steps.jsonl", HAND).splitlines()[0])["step_id"] == "discover"


async def test_reading_adopts_nothing(harness: StoreHarness) -> None:
    """Reading a folder written by hand returns its steps and leaves its files unchanged."""
    store = await harness.open()
    journal = written(harness)
    loaded = await store.read(HAND)

    assert [record.output for record in loaded.records] == [PAYLOAD, TEXT]
    assert harness.files().names(f"runs/{HAND}") == ["cache.json", "run.json", "steps.jsonl"]
    assert harness.content("steps.jsonl", HAND) == journal


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"discover": SLOTS["discover"] | {"sha256": "0" * 64}}, 0),
        ({"discover": SLOTS["discover"] | {"receipt_id": "rcpt_other"}}, 0),
        ({"discover": None}, 0),
        ({"brief": SLOTS["brief"] | {"text": TEXT + "!"}}, 1),
        ({"brief": SLOTS["brief"] | {"sha256": "0" * 64}}, 1),
        ({"brief": {"type": "artifact"}}, 1),
        ({"brief": "nonsense"}, 1),
    ],
)
async def test_from_a_slot_that_does_not_fit_steps_run_again(
    harness: StoreHarness, change: dict[str, Any], kept: int
) -> None:
    """Adoption drops the first line that does not match its slot, with all later lines, and reports their number."""
    store = await harness.open()
    written(harness, slots=SLOTS | change)
    log = await store.open(HAND)
    event = next(event for event in await store.read_events(HAND) if event.type == "recovery.adopted")

    assert [record.key for record in log.loaded.records] == ["discover", "brief"][:kept]
    assert event.data == {"lines": kept, "dropped": 2 - kept}


async def test_a_torn_journal_written_by_hand_is_read_as_far_as_it_goes(harness: StoreHarness) -> None:
    """An unreadable line ends a journal written by hand, and a failed step does not count."""
    store = await harness.open()
    journal = written(harness)
    harness.put("steps.jsonl", journal[:-30], HAND)
    torn = await store.read(HAND)
    written(harness, lines=[LINES[0], LINES[1] | {"status": "failed", "error": "broken"}])
    failed = await store.read(HAND)

    assert [record.key for record in torn.records] == ["discover"]
    assert [record.key for record in failed.records] == ["discover"]


async def test_a_finished_folder_written_by_hand_is_not_continued(harness: StoreHarness) -> None:
    """A folder whose run.json has the status done is listed as done, stays so when opened, and can be deleted."""
    store = await harness.open()
    written(harness, manifest(status="done", completed_at="2026-02-10T14:40:00Z"))
    unfinished = await store.list_unfinished()
    loaded = await store.read(HAND)
    log = await store.open(HAND)
    written_twice = await log.decide(DecisionKind.CANCEL_REQUESTED, {})
    await log.close()
    status = (await store.summary(HAND)).status
    await store.delete(HAND)

    assert unfinished == []
    assert loaded.decisions.status is RunState.DONE
    assert not written_twice
    assert status == "done"


@pytest.mark.blobs
async def test_large_artifacts_become_blobs(harness: StoreHarness) -> None:
    """Adoption stores a text over 64 kB as a blob."""
    text = "long " * 20_000
    slots = {"brief": SLOTS["brief"] | {"text": text, "sha256": plain.sha256(text.encode())}}
    store = await harness.open()
    written(harness, lines=[line(0, "brief", text)], slots=slots)
    seen = (await store.read(HAND)).records[0]
    log = await store.open(HAND)
    record = log.loaded.records[0]

    assert seen.output == text
    assert record.output is None
    assert record.blob is not None
    assert await log.get_blob(record.blob) == text


async def test_an_adoption_that_was_cut_off_is_made_again(harness: StoreHarness) -> None:
    """After a crash at any write of an adoption, the next opening adopts the folder without loss."""

    store = await harness.open()
    points = [
        f"storage.adopt.{name}.{at}"
        for name in ("aside", "steps", "control", "start")
        for at in ("before_write", "before_rename", "after_rename")
    ]
    for point in points:
        journal = written(harness, name=HAND)
        harness.passed.at = {point: store_harness.die}
        with pytest.raises(store_harness.Died):
            await store.open(HAND)
        harness.passed.at = {}
        store = await harness.crash()
        log = await store.open(HAND)
        assert [record.output for record in log.loaded.records] == [PAYLOAD, TEXT]
        assert harness.content("steps.jsonl.adopted", HAND) == journal
        await log.close()
        harness.files().remove_tree(f"runs/{HAND}")
        harness.files().sync_folder("runs")


async def test_a_folder_under_another_name_is_foreign(harness: StoreHarness) -> None:
    """A folder written by hand under another run's name is listed as foreign, and never started automatically."""
    store = await harness.open()
    written(harness, name="other")
    unfinished = await store.list_unfinished()
    listed = await store.list_runs(RunQuery())

    assert unfinished == []
    assert [(run.run_id, run.owner) for run in listed] == [("other", "foreign")]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"run_id": "run_abc123", "recipe_id": 5}'])
async def test_an_unreadable_manifest_is_listed_as_damaged(harness: StoreHarness, content: bytes) -> None:
    """A folder with neither a start nor a readable manifest is listed as damaged."""
    store = await harness.open()
    written(harness)
    harness.put("run.json", content, HAND)
    await store.list_unfinished()
    with pytest.raises(errors.JournalCorrupt):
        await store.open(HAND)

    assert (await store.summary(HAND)).error_code == "journal_corrupt"


async def test_a_refused_adoption_keeps_its_reason_and_the_folder(harness: StoreHarness) -> None:
    """A folder that the composition root refuses to adopt is refused for the same reason, and stays unchanged."""

    async def refuse(manifest: Any) -> Any:
        raise errors.UnknownRecipe("no such recipe")

    store = await harness.open()
    journal = written(harness)
    store._parts.folders._adopt = refuse
    with pytest.raises(errors.UnknownRecipe):
        await store.open(HAND)
    store._parts.folders._adopt = None
    with pytest.raises(errors.JournalCorrupt):
        await store.open(HAND)

    assert harness.content("steps.jsonl", HAND) == journal


async def test_decisions_of_a_run_that_lost_its_start_are_kept_aside(harness: StoreHarness) -> None:
    """An old control journal is kept beside the adopted run."""
    store = await harness.open()
    written(harness)
    decided = b'{"kind":"cancel_requested"}\n'
    harness.files().write(f"runs/{HAND}/control.jsonl", decided, sync=True)
    await store.open(HAND)

    assert harness.content("control.jsonl.adopted", HAND) == decided
