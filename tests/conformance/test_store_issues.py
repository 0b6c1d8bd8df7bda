"""Issues in any store: stored under their ids, listed in order, and correct after every crash."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from app import errors
from app.domain import issues
from app.domain.issues import IssueQuery
from tests.conformance import store_harness
from tests.conformance.store_harness import StoreHarness

AT = "2026-02-10T14:30:00.000Z"


def made(issue_id: str = "iss_1", at: str = AT, **facts: Any) -> dict[str, Any]:
    """Return a new record."""
    fields = {"title": "First", "body": "", "kind": "dod", "run_id": "r1", "session_id": "s1", "receipts": []}
    return issues.made(issue_id, at, **(fields | facts))


def closing(known: issues.Issue | None) -> issues.Issue:
    """Return a closed copy of an issue."""
    assert known is not None
    return dict(known) | {"status": "closed", "revision": known["revision"] + 1}


async def rows(harness: StoreHarness, **query: Any) -> list[tuple[str, str, int]]:
    """Return the rows that lists show."""
    return [(row.issue_id, row.status, row.revision) for row in await harness.store.issues.list(IssueQuery(**query))]


@pytest.mark.parametrize("point", ["before_write", "before_rename", "after_rename"])
async def test_a_change_that_is_cut_off_is_whole_or_not_there(harness: StoreHarness, point: str) -> None:
    """After a death at any moment of a change, the list agrees with the file."""
    store = await harness.open()
    await store.issues.open(made())
    harness.passed.at[f"storage.issue.{point}"] = store_harness.die
    with pytest.raises(store_harness.Died):
        await store.issues.change("iss_1", closing)
    harness.passed.at.clear()
    store = await harness.crash()
    await store.list_unfinished()
    shown = await store.issues.get("iss_1")

    assert await rows(harness) == [("iss_1", shown["status"], shown["revision"])]
    if point != "after_rename":
        assert shown["status"] == "open"


async def test_a_look_at_files_takes_no_mark_off_a_change(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comparing rows with files during a change does not hide the change if the process dies in it."""
    store = await harness.open()
    index, read, marked = store._parts.context.index, asyncio.Event(), asyncio.Event()
    put, mark = index.put_issues, index.mark_issue

    async def put_late(found: Any, *, doubtful: bool = False) -> None:
        read.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(marked.wait(), 0.3)
        await put(found, doubtful=doubtful)

    async def mark_aloud(issue_id: str) -> None:
        await mark(issue_id)
        marked.set()

    await store.issues.open(made())
    await index.mark_issue("iss_1")
    monkeypatch.setattr(index, "put_issues", put_late)
    monkeypatch.setattr(index, "mark_issue", mark_aloud)
    harness.passed.at["storage.issue.after_rename"] = store_harness.die
    compared = asyncio.create_task(store.issues.compare())
    await read.wait()
    with pytest.raises(store_harness.Died):
        await store.issues.change("iss_1", closing)
    await compared
    harness.passed.at.clear()
    monkeypatch.undo()
    store = await harness.crash()
    await store.list_unfinished()
    shown = await store.issues.get("iss_1")

    assert await rows(harness) == [("iss_1", shown["status"], shown["revision"])]


@pytest.mark.parametrize("point", ["before_write", "before_rename", "after_rename"])
async def test_an_issue_that_is_cut_off_is_whole_or_not_there(harness: StoreHarness, point: str) -> None:
    """After a death at any moment of its creation, an issue exists with its row or not at all."""
    store = await harness.open()
    harness.passed.at[f"storage.issue.{point}"] = store_harness.die
    with pytest.raises(store_harness.Died):
        await store.issues.open(made())
    harness.passed.at.clear()
    store = await harness.crash()
    await store.list_unfinished()
    there = harness.files().has_file("issues/iss_1.json")

    assert await rows(harness) == ([("iss_1", "open", 1)] if there else [])
    await store.issues.open(made())
    assert await rows(harness) == [("iss_1", "open", 1)]


async def test_a_confirmed_issue_change_survives_a_crash(harness: StoreHarness) -> None:
    """A confirmed change is in file and list after a crash or a power cut."""
    store = await harness.open()
    for number in range(3):
        await store.issues.open(made(f"iss_{number}"))
    await store.issues.change("iss_1", closing)
    store = await harness.crash()
    await store.list_unfinished()

    assert await rows(harness) == [("iss_2", "open", 1), ("iss_1", "closed", 2), ("iss_0", "open", 1)]
    assert (await store.issues.get("iss_1"))["status"] == "closed"


async def test_a_refused_change_leaves_the_issue(harness: StoreHarness) -> None:
    """On a full disk an issue stays unchanged, and can be changed once there is space."""
    store = await harness.open()
    await store.issues.open(made())
    harness.faults.refuse("write", "iss_1")
    with pytest.raises(errors.StorageFault):
        await store.issues.change("iss_1", closing)
    harness.faults.lift()

    assert await rows(harness) == [("iss_1", "open", 1)]
    await store.issues.change("iss_1", closing)
    assert await rows(harness) == [("iss_1", "closed", 2)]


async def test_pages_and_filters(harness: StoreHarness) -> None:
    """Issues come newest first, page by page; filters are combined."""
    store = await harness.open()
    for number in range(5):
        at = f"2026-02-10T14:3{number // 2}:00.000Z"
        await store.issues.open(made(f"iss_{number}", at, kind=("dod", "note")[number % 2], run_id=f"r{number % 3}"))
    await store.issues.change("iss_4", closing)
    order = [name for name, _, _ in await rows(harness)]
    page = await store.issues.list(IssueQuery(limit=2))
    behind = await rows(harness, limit=2, cursor=(page[-1].created_at, page[-1].issue_id))

    assert order == ["iss_4", "iss_3", "iss_2", "iss_1", "iss_0"]
    assert [name for name, _, _ in behind] == order[2:4]
    assert [name for name, _, _ in await rows(harness, kind="dod", status="open")] == ["iss_2", "iss_0"]
    assert [name for name, _, _ in await rows(harness, run_id="r1")] == ["iss_4", "iss_1"]
    assert await rows(harness, session_id="other") == []


async def test_the_list_is_rebuilt_from_the_files(harness: StoreHarness) -> None:
    """A rebuild makes the rows from the files, and skips files that are not issues."""
    store = await harness.open()
    await store.issues.open(made())
    await store.issues.change("iss_1", closing)
    files = harness.files()
    files.write("issues/iss_2.json", json.dumps({"issue_id": "iss_2", "title": "By hand"}).encode(), sync=True)
    files.write("issues/copy.json", json.dumps({"issue_id": "iss_1", "title": "A copy"}).encode(), sync=True)
    for name, content in (("a.json", b"{"), ("b.json", b"[]"), ("c.json", b"[" * 100_000), (".iss_1.json.new", b"")):
        files.write(f"issues/{name}", content, sync=True)

    assert (await store.rebuild_index())["issues"] == 2
    assert await rows(harness) == [("iss_1", "closed", 2), ("iss_2", "open", 1)]


async def test_a_file_that_is_gone_loses_its_row(harness: StoreHarness) -> None:
    """An issue whose file was removed is not listed after the next start."""
    store = await harness.open()
    await store.issues.open(made())
    harness.files().remove("issues/iss_1.json")
    harness.files().sync_folder("issues")
    store = await harness.crash()
    await store.list_unfinished()

    assert await rows(harness) == []
    with pytest.raises(errors.NotFound):
        await store.issues.change("iss_1", lambda known: known)


async def test_changes_of_one_issue_come_one_after_the_other(harness: StoreHarness) -> None:
    """Concurrent changes of an issue are made one after the other."""
    store = await harness.open()
    await store.issues.open(made())
    await asyncio.gather(*(store.issues.change("iss_1", closing) for _ in range(10)))

    assert await rows(harness) == [("iss_1", "closed", 11)]


class TestFoundAgain:
    """A step that makes the same finding again, after a crash or a resume."""

    async def test_the_same_finding_changes_nothing(self, harness: StoreHarness) -> None:
        """Repeating a finding leaves the issue unchanged."""
        store = await harness.open()
        await store.issues.open(made())
        await store.issues.open(made(at="2026-02-11T14:30:00.000Z"))

        assert await store.issues.get("iss_1") == made()

    async def test_a_closed_issue_is_opened_again(self, harness: StoreHarness) -> None:
        """Repeating the finding of a closed issue opens the issue again, with the new facts."""
        store = await harness.open()
        await store.issues.open(made())
        await store.issues.change("iss_1", closing)
        await store.issues.open(made(title="Second", facts={"kind": "dod"}))
        shown = await store.issues.get("iss_1")

        assert (shown["status"], shown["title"], shown["revision"]) == ("open", "Second", 3)
        assert shown["facts"] == {"kind": "dod"}

    async def test_a_persons_words_stay(self, harness: StoreHarness) -> None:
        """Repeating a finding keeps the title that a person has changed."""
        store = await harness.open()
        await store.issues.open(made())
        await store.issues.change("iss_1", lambda known: dict(known or {}) | {"title": "Mine", "edited_at": AT})
        await store.issues.open(made(title="Second", facts={"n": 1}))
        shown = await store.issues.get("iss_1")

        assert (shown["title"], shown["facts"]) == ("Mine", {"n": 1})


async def test_a_session_with_a_run_or_a_plan_is_known(harness: StoreHarness) -> None:
    """A session with a run or a plan is known."""
    store = await harness.open()
    assert not await store.issues.knows_session(store_harness.SESSION)
    await store.create(store_harness.start())
    harness.files().add_folder("sessions/planned")
    harness.files().write("sessions/planned/plan.json", b"{}", sync=True)

    assert await store.issues.knows_session(store_harness.SESSION)
    assert await store.issues.knows_session("planned")
    assert not await store.issues.knows_session("agents")


async def test_an_issue_without_its_file_is_logged_once(
    harness: StoreHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """An issue whose file is gone is logged once as an error, with the run that it came from."""
    store = await harness.open()
    await store.issues.open(made())
    harness.files().remove("issues/iss_1.json")
    harness.files().sync_folder("issues")
    store = await harness.crash()
    for _ in range(2):
        await store.list_unfinished()

    (told,) = [record for record in caplog.records if "iss_1" in record.getMessage()]

    assert await rows(harness) == []
    assert (told.levelname, vars(told)["run_id"]) == ("ERROR", "r1")
