"""Growing runs: each line of a growing run is read once, and the result equals that of a whole reading."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from app import errors
from app.domain import decisions, records
from app.domain.decisions import DecisionKind
from app.engine import stores
from app.storage.journal import chain
from app.storage.postgres import journals, places, rows
from app.storage.runs.folder_log import FolderLog
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, StoreHarness


async def grow(log: FolderLog, key: str) -> None:
    """Begin and record a step."""
    facts = {"key": key, "attempt": 1, "operation": f"sha256:{key}"}
    await log.decide(DecisionKind.STARTED, facts)
    await log.append_step(store_harness.step(key))
    await log.flush()


async def outcome(reading: Awaitable[stores.Loaded]) -> stores.Loaded | str:
    """Return the loaded run, or the reason why it cannot be read."""
    try:
        return await reading
    except errors.ControlRoomError as error:
        return error.message


def whole(harness: StoreHarness) -> Awaitable[stores.Loaded]:
    """Read the whole run."""
    return harness.store._parts.folders.read(RUN, deep=True)


async def test_each_line_of_a_run_that_grows_is_read_once(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reading costs only the new lines of a run, at any length, and none if there are no new lines."""
    log = await store_harness.begun(harness)
    for number in range(30):
        await grow(log, f"s{number}")
    await harness.store.read(RUN)
    read: list[str] = []
    of_line, apply = records.read, decisions.Decisions.apply

    def counted(position: int, line: dict[str, Any]) -> records.Record:
        read.append("step")
        return of_line(position, line)

    def applied(decided: decisions.Decisions, line: dict[str, Any]) -> None:
        read.append("decision")
        apply(decided, line)

    monkeypatch.setattr(records, "read", counted)
    monkeypatch.setattr(decisions.Decisions, "apply", applied)
    for number in range(30, 34):
        await grow(log, f"s{number}")
        read.clear()
        found = await harness.store.read(RUN)
        assert read == ["step", "decision"]
        assert await harness.store.read(RUN) == found
        assert len(read) == 2

    assert [record.key for record in found.records] == [f"s{number}" for number in range(34)]
    assert found.decisions.highest_attempt == {f"s{number}": 1 for number in range(34)}


async def test_an_incremental_reading_equals_a_whole_one(harness: StoreHarness) -> None:
    """After every kind of decision, an incremental reading equals a whole one."""
    log = await store_harness.begun(harness)
    acts: list[tuple[DecisionKind, dict[str, Any]]] = [
        (DecisionKind.TAKEN, {}),
        (DecisionKind.LABELLED, {"labels": {"book": "one"}}),
        (DecisionKind.VOTED, {"gate_id": "g", "decision": "approve", "message": None}),
        (DecisionKind.PAUSED, {"reason": "paused_by_person"}),
        (DecisionKind.UNPAUSED, {}),
        (DecisionKind.RELEASED, {}),
        (DecisionKind.CANCEL_REQUESTED, {}),
        (DecisionKind.RESUMED, {"dead": [[0, 1]]}),
        (DecisionKind.TAKEN, {}),
        (DecisionKind.PLACED, {"worker": "w"}),
    ]
    for number, (kind, facts) in enumerate(acts):
        await grow(log, f"s{number}")
        await harness.store.read(RUN)
        await log.decide(kind, facts)
        await log.flush()

        assert (kind, await harness.store.read(RUN)) == (kind, await whole(harness))


def cut(content: bytes) -> bytes:
    """Return a journal without its last line."""
    return content[: content.rfind(b"\n", 0, -1) + 1]


def anew(content: bytes) -> bytes:
    """Return a journal with other lines, and one more of them."""
    lines = [json.loads(line) for line in content.splitlines()]
    anchor = lines[0]["prev"]
    bare = [{name: line[name] for name in line if name not in ("batch", "prev", "crc32")} for line in lines]
    return chain.sealed([*({**line, "title": "changed"} for line in bare), bare[-1]], anchor)[0]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("steps.jsonl", cut),
        ("control.jsonl", cut),
        ("steps.jsonl", anew),
        ("steps.jsonl", lambda content: content.replace(b"output of s0", b"output of S0")),
        ("start.json", lambda content: content + b" "),
    ],
)
async def test_a_rewritten_file_is_read_as_a_whole(
    harness: StoreHarness, file: str, change: Callable[[bytes], bytes]
) -> None:
    """A file that does not continue its earlier content is read as a whole."""
    log = await store_harness.begun(harness)
    for number in range(3):
        await grow(log, f"s{number}")
        await harness.store.read(RUN)
    await log.close()
    before = await harness.store.read(RUN)
    harness.change(file, change)
    found = await outcome(harness.store.read(RUN))

    assert found != before
    assert found == await outcome(whole(harness))


async def test_the_end_of_a_long_journal_is_read_without_its_beginning(harness: StoreHarness) -> None:
    """Reading the last bytes of a long journal or events file costs only a few rows of the database."""
    if not isinstance(harness, store_harness.PostgresStoreHarness):
        pytest.skip("a folder reads from an offset on")
    await grow(await store_harness.begun(harness), "one")
    with psycopg.connect(harness.url) as connection:
        cursor = connection.cursor()
        for name, table, lengthen, read in (
            ("steps.jsonl", "lines", _LONGER_JOURNAL, journals.read),
            ("events.jsonl", "chunks", _LONGER_FILE, rows.read),
        ):
            place = places.of(f"runs/{RUN}/{name}")
            cursor.execute(lengthen, {"place": place.run, "name": name, "count": 3000})
            cursor.execute(f"ANALYZE control_room.{table}")
            content = read(cursor, place, 0, 2**40) or b""
            before = _fetched(connection, table)
            end = read(cursor, place, len(content) - 10, 2**40)

            assert len(content) > 300_000
            assert end == content[-10:]
            assert _fetched(connection, table) - before <= 4


# The planner chooses by its statistics of a table, so the rows are real: each is a hundred bytes after the others.
_LONGER_JOURNAL = """
WITH ended AS (SELECT run, journal, max(position) AS position, max(begins_at + octet_length(line)) AS size
  FROM control_room.lines WHERE journal = %(name)s
    AND run = (SELECT id FROM control_room.runs WHERE place = %(place)s) GROUP BY run, journal)
INSERT INTO control_room.lines (run, journal, position, begins_at, line)
SELECT run, journal, position + n, size + 100 * (n - 1), convert_to(rpad(n::text, 100), 'UTF8')
FROM ended, generate_series(1, %(count)s) n
"""
_LONGER_FILE = """
WITH ended AS (SELECT run, folder, name, max(begins_at + octet_length(content)) AS size
  FROM control_room.chunks WHERE name = %(name)s
    AND run = (SELECT id FROM control_room.runs WHERE place = %(place)s) GROUP BY run, folder, name)
INSERT INTO control_room.chunks (run, folder, name, begins_at, content)
SELECT run, folder, name, size + 100 * (n - 1), convert_to(rpad(n::text, 100), 'UTF8')
FROM ended, generate_series(1, %(count)s) n
"""


def _fetched(connection: psycopg.Connection[Any], table: str) -> int:
    query = (
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"
        " WHERE schemaname = 'control_room' AND relname = %s"
    )
    [count] = connection.execute(query, (table,)).fetchone() or (0,)
    return int(count)
