"""Hostile folders: any content of a run's folder is listed, and reading it gives a run or a clear error."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app import errors
from app.domain import plain
from app.domain.decisions import DecisionKind
from app.storage import layout
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.journal import chain
from app.storage.runs import adoption, authority, census
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN
from tests.examples import examples

FOLDER = f"runs/{RUN}"

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from([kind.value for kind in DecisionKind]) | values
names = [
    "at",
    "key",
    "attempt",
    "operation",
    "due_at",
    "reason",
    "error",
    "status",
    "lines",
    "head",
    "causes",
    "ending",
]
decisions = st.fixed_dictionaries(
    {"kind": kinds, "at": st.just("2026-02-10T14:30:00Z") | values},
    optional={**dict.fromkeys(names[1:], values), "overrides": values, "dead": st.lists(st.lists(st.integers(0, 3)))},
)
steps = st.sampled_from(sorted(store_harness.step("a"))).flatmap(
    lambda name: values.map(lambda value: store_harness.step("a") | {name: value})
)
starts = st.sampled_from(sorted(store_harness.start().to_json())).flatmap(
    lambda name: values.map(lambda value: store_harness.start().to_json() | {name: value})
)
manifests = st.dictionaries(
    st.sampled_from(
        ["run_id", "recipe_id", "session_id", "status", "created_at", "updated_at", "completed_at", "task"]
    ),
    values | st.just(RUN),
)


def disk_with(**files: bytes) -> MemoryDisk:
    """Return a disk with one run's folder."""
    disk = MemoryDisk()
    for folder in (*layout.FOLDERS, FOLDER):
        disk.add_folder(folder)
    for name, content in files.items():
        disk.write(f"{FOLDER}/{name.replace('__', '.')}", content, sync=True)
    return disk


def sealed(lines: list[Any], anchor: str) -> bytes:
    """Return lines as a journal with a sound chain."""
    content = b""
    for line in lines:
        made = chain.seal(plain.encode(line), batch=0, prev=anchor)
        content, anchor = content + made.content, made.digest
    return content


def examine(disk: MemoryDisk) -> None:
    """List and read a folder like a start and a request."""
    row = census.row_of(disk, RUN, "memory")
    if row is not None:
        assert row.summary.run_id == RUN
        assert isinstance(row.summary.created_at, str)
        assert (row.summary.completed_at is not None) == (row.summary.status in ("done", "failed", "cancelled"))
    with contextlib.suppress(errors.NotFound, errors.JournalCorrupt):
        authority.read(disk, RUN, deep=True).loaded()


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(decisions, max_size=3), st.lists(steps, max_size=2))
def test_lines_that_are_sound_and_wrong(control: list[Any], journal: list[Any]) -> None:
    """A journal with a sound chain and nonsense in its lines is damaged, without any other error."""
    start = plain.encode(store_harness.start().to_json())
    anchor = plain.labelled_sha256(start)
    disk = disk_with(start__json=start, control__jsonl=sealed(control, anchor), steps__jsonl=sealed(journal, anchor))

    examine(disk)


@settings(max_examples=examples(80), deadline=None)
@given(starts | values)
def test_starts_that_are_wrong(start: Any) -> None:
    """A start.json of any shape is either a run's or refused."""
    examine(disk_with(start__json=plain.encode(start), control__jsonl=b"", steps__jsonl=b""))


@settings(max_examples=examples(80), deadline=None)
@given(manifests | values, st.lists(steps | values, max_size=3), st.dictionaries(st.just("a"), values))
@example({"recipe_id": "a"}, [{"step_id": "a", "status": "done", "output_slot": [], "output_hash": ""}], {})
def test_folders_by_hand_that_are_wrong(manifest: Any, lines: list[Any], slots: Any) -> None:
    """A handmade folder of any shape is listed, and its trustworthy beginning is found."""
    content = b"".join(plain.encode(line) + b"\n" for line in lines)
    disk = disk_with(run__json=plain.encode(manifest), steps__jsonl=content, cache__json=plain.encode(slots))
    examine(disk)
    try:
        found = adoption.find(disk, RUN)
    except (errors.NotFound, errors.JournalCorrupt):
        return
    made = adoption.convert(found, store_harness.start(adopted=True), "2026-02-10T14:30:00.000Z")
    adoption.write(disk, RUN, made, lambda point: None)

    authority.read(disk, RUN, deep=True).loaded()


@pytest.mark.parametrize("name", ["start.json", "steps.jsonl", "control.jsonl", "run.json", "events.jsonl"])
def test_a_folder_in_place_of_a_file(name: str) -> None:
    """A folder in place of a file is ordinary damage."""
    start = plain.encode(store_harness.start().to_json())
    files = {"start__json": start, "control__jsonl": b"", "steps__jsonl": b"", "run__json": b"{}", "events__jsonl": b""}
    del files[name.replace(".", "__")]
    disk = disk_with(**files)
    disk.add_folder(f"{FOLDER}/{name}")

    examine(disk)
