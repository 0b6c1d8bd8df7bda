"""Session plans in any store: stored by their sessions, listed in order from memory, whole after every crash."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import logging
from typing import Any

import pytest

from app import errors
from app.domain import plans
from app.domain.plans import Plan, PlanQuery, PlanState, Task
from app.storage.disk.disk_port import Disk
from tests.conformance import store_harness
from tests.conformance.store_harness import StoreHarness

AT = "2026-02-10T14:30:00.000Z"
PATH = "sessions/sp_1/plan.json"

BY_HAND = {
    "session_id": "sp_1",
    "created_by": "chief",
    "status": "running",
    "created_at": "2026-02-10T14:00:00Z",
    "tasks": [
        {"id": 1, "description": "Write Scene 21", "recipe_id": "creative_draft_scene", "deps": []}
        | {"dod": "Scene file exists", "status": "done", "run_id": "run_abc"},
        {"id": 2, "description": "Write Scene 22", "recipe_id": "creative_draft_scene", "deps": [1]}
        | {"status": "blocked", "run_id": None, "mine": {"kept": True}},
    ],
    "color": "red",
}


def made(session_id: str = "sp_1", at: str = AT, **fields: Any) -> Plan:
    """Return a plan."""
    tasks = (Task(id=1, description="First", recipe_id="draft"), Task(id=2, description="Then", deps=(1,)))
    return Plan(**({"session_id": session_id, "created_at": at, "updated_at": at, "tasks": tasks} | fields))


async def listed(harness: StoreHarness, **query: Any) -> list[tuple[str, str, int]]:
    """Return the rows that lists show."""
    return [
        (each.session_id, each.status, each.revision) for each in await harness.store.plans.list(PlanQuery(**query))
    ]


def by_hand(harness: StoreHarness, content: bytes, session_id: str = "sp_1") -> None:
    """Write a plan's file as a person does."""
    files = harness.files()
    files.add_folder(f"sessions/{session_id}")
    files.write(f"sessions/{session_id}/plan.json", content, sync=True)
    for folder in ("sessions", f"sessions/{session_id}"):
        files.sync_folder(folder)


class CountingDisk:
    """A disk that counts reads."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.read_files: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Read a file, and record its path."""
        self.read_files.append(path)
        return self._disk.read(path, offset, size)


def counted(harness: StoreHarness) -> CountingDisk:
    """Let the plans be read from a counting disk."""
    context = harness.store.plans._context
    counting = CountingDisk(context.disk)
    object.__setattr__(context, "disk", counting)
    return counting


class TestCrashes:
    """Deaths at each write of a plan."""

    @pytest.mark.parametrize("point", ["before_write", "before_rename", "after_rename"])
    async def test_a_change_is_whole_or_not_there(self, harness: StoreHarness, point: str) -> None:
        """After a death at any moment of a change, the plan is the old or the new one, and the list agrees."""
        store = await harness.open()
        await store.plans.put(made())
        harness.passed.at[f"storage.plan.{point}"] = store_harness.die
        changed = made(revision=2, status=PlanState.APPROVED, intent="x" * 50_000)
        with pytest.raises(store_harness.Died):
            await store.plans.put(changed)
        harness.passed.at.clear()
        store = await harness.crash()
        found = await store.plans.get("sp_1")

        assert found in ((made(), changed) if point == "after_rename" else (made(),))
        assert found is not None
        assert await listed(harness) == [("sp_1", found.status.value, found.revision)]
        await store.plans.put(changed)
        assert await store.plans.get("sp_1") == changed

    @pytest.mark.parametrize("point", ["before_write", "before_rename", "after_rename"])
    async def test_a_new_plan_is_whole_or_not_there(self, harness: StoreHarness, point: str) -> None:
        """After a death at any moment of its creation, a plan is whole or missing, and can be created."""
        store = await harness.open()
        harness.passed.at[f"storage.plan.{point}"] = store_harness.die
        with pytest.raises(store_harness.Died):
            await store.plans.put(made())
        harness.passed.at.clear()
        store = await harness.crash()
        found = await store.plans.get("sp_1")

        assert found in ((made(), None) if point == "after_rename" else (None,))
        assert await listed(harness) == ([("sp_1", "draft", 1)] if found else [])
        await store.plans.put(made())
        store = await harness.crash()
        assert await store.plans.get("sp_1") == made()

    async def test_a_confirmed_plan_change_survives_a_crash(self, harness: StoreHarness) -> None:
        """A confirmed change survives a crash or power cut, even if a death interrupted the creation."""
        store = await harness.open()
        harness.passed.at["storage.plan.after_rename"] = store_harness.die
        with pytest.raises(store_harness.Died):
            await store.plans.put(made())
        harness.passed.at.clear()
        store = await harness.crash()
        for revision in (1, 2, 3):
            await store.plans.put(made(revision=revision))
        await store.plans.put(made("sp_2"))
        store = await harness.crash()

        assert await store.plans.get("sp_1") == made(revision=3)
        assert await listed(harness) == [("sp_2", "draft", 1), ("sp_1", "draft", 3)]


class TestRemoval:
    """Removed plans."""

    async def test_a_removed_plan_is_gone_for_good(self, harness: StoreHarness) -> None:
        """A removed plan is neither found nor listed, also after a crash, and its id counts as removed."""
        store = await harness.open()
        for session_id in ("sp_1", "sp_2"):
            await store.plans.put(made(session_id))
        await store.plans.remove("sp_1")
        known = [await store.plans.was_removed(each) for each in ("sp_1", "sp_2", "sp_3")]
        before = await listed(harness)
        store = await harness.crash()

        assert known == [True, False, False]
        assert before == await listed(harness) == [("sp_2", "draft", 1)]
        assert await store.plans.get("sp_1") is None
        assert await store.plans.was_removed("sp_1")
        assert harness.files().names("sessions/sp_1") == []

    async def test_a_removal_deletes_only_the_plans_file(self, harness: StoreHarness) -> None:
        """A removal deletes only the plan's file, and a new plan in its place is listed as usual."""
        store = await harness.open()
        await store.plans.put(made())
        harness.files().write("sessions/sp_1/notes.md", b"mine", sync=True)
        await store.plans.remove("sp_1")
        await store.plans.put(made(revision=7))

        assert harness.files().read("sessions/sp_1/notes.md") == b"mine"
        assert await listed(harness) == [("sp_1", "draft", 7)]

    @pytest.mark.parametrize("point", ["before_marker", "before_remove", "after_remove"])
    async def test_a_removal_is_whole_or_not_there(self, harness: StoreHarness, point: str) -> None:
        """After a death at any moment of a removal, the plan is unchanged or gone, and can then be removed."""
        store = await harness.open()
        await store.plans.put(made())
        harness.passed.at[f"storage.plan.{point}"] = store_harness.die
        with pytest.raises(store_harness.Died):
            await store.plans.remove("sp_1")
        harness.passed.at.clear()
        store = await harness.crash()
        found = await store.plans.get("sp_1")

        assert found in ((made(), None) if point == "after_remove" else (made(),))
        assert (await listed(harness) == []) == (found is None)
        assert found is not None or await store.plans.was_removed("sp_1")
        if found is not None:
            await store.plans.remove("sp_1")
        assert await listed(harness) == []

    @pytest.mark.parametrize("name", [".removed", "sp_1"])
    async def test_a_refused_removal_is_an_error(self, harness: StoreHarness, name: str) -> None:
        """On a disk that refuses a removal, the plan is whole or gone, and the caller gets an error."""
        store = await harness.open()
        await store.plans.put(made())
        harness.faults.refuse("sync", name)
        with pytest.raises(errors.StorageFault):
            await store.plans.remove("sp_1")
        harness.faults.lift()

        assert await store.plans.get("sp_1") == (made() if name == ".removed" else None)
        assert await listed(harness) == ([("sp_1", "draft", 1)] if name == ".removed" else [])


class TestLoss:
    """Plans that vanish without a removal."""

    async def test_a_vanished_plan_is_logged_until_it_is_removed(
        self, harness: StoreHarness, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Each start logs a plan whose file or folder has vanished, until the plan is removed."""
        store = await harness.open()
        for number in (1, 2, 3, 4):
            await store.plans.put(made(f"sp_{number}"))
        await store.plans.remove("sp_4")
        harness.files().remove_tree("sessions/sp_1")
        harness.files().remove("sessions/sp_2/plan.json")
        for folder in ("sessions", "sessions/sp_2"):
            harness.files().sync_folder(folder)
        lost = [await store.plans.was_lost(f"sp_{number}") for number in (1, 2, 3, 4, 5)]
        with caplog.at_level(logging.ERROR):
            store = await harness.crash()
        told = [each.getMessage() for each in caplog.records]
        for number in (1, 2):
            await store.plans.remove(f"sp_{number}")
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            store = await harness.crash()

        assert lost == [True, True, False, False, False]
        gone = "sessions/{}/plan.json is gone, although the plan was not deleted here"
        assert told == [gone.format("sp_1"), gone.format("sp_2")]
        assert (caplog.records, await listed(harness)) == ([], [("sp_3", "draft", 1)])
        assert await store.plans.was_removed("sp_1")

    async def test_a_plan_that_was_never_answered_is_not_missed(self, harness: StoreHarness) -> None:
        """A plan whose creation died before its file had a name does not count as lost."""
        store = await harness.open()
        harness.passed.at["storage.plan.before_rename"] = store_harness.die
        with pytest.raises(store_harness.Died):
            await store.plans.put(made())
        harness.passed.at.clear()
        store = await harness.crash()

        assert not await store.plans.was_lost("sp_1")

    async def test_a_plan_that_is_made_again_is_missed_no_more(self, harness: StoreHarness) -> None:
        """A lost plan that is stored again is not lost; one written by hand counts as lost only after a change."""
        store = await harness.open()
        await store.plans.put(made())
        harness.files().remove_tree("sessions/sp_1")
        await store.plans.put(made(revision=2))
        by_hand(harness, json.dumps(BY_HAND | {"session_id": "sp_2"}).encode(), "sp_2")
        again, known = await store.plans.was_lost("sp_1"), await store.plans.get("sp_2")
        assert known is not None
        await store.plans.put(known)
        harness.files().remove_tree("sessions/sp_2")

        assert not again
        assert await store.plans.was_lost("sp_2")


class TestFaults:
    """Disks that refuse operations."""

    @pytest.mark.parametrize(("operation", "name"), [("write", "plan.json"), ("sync", "sp_1")])
    async def test_a_refused_change_loses_nothing(self, harness: StoreHarness, operation: str, name: str) -> None:
        """On a full disk a plan stays whole, and can be changed once there is space."""
        store = await harness.open()
        await store.plans.put(made())
        harness.faults.refuse(operation, name)
        with pytest.raises(errors.StorageFault) as refused:
            await store.plans.put(made(revision=2))
        harness.faults.lift()
        found = await store.plans.get("sp_1")

        assert refused.value.detail["errno"] == "ENOSPC"
        assert found in ((made(),) if operation == "write" else (made(), made(revision=2)))
        assert found is not None
        assert await listed(harness) == [("sp_1", "draft", found.revision)]
        await store.plans.put(made(revision=2))
        assert await listed(harness) == [("sp_1", "draft", 2)]

    async def test_a_change_ends_though_its_caller_is_cut_off(self, harness: StoreHarness) -> None:
        """A change that waits for its turn is made, even if its caller is cancelled."""
        store = await harness.open()
        loop, written, both = asyncio.get_running_loop(), itertools.count(1), asyncio.Event()

        def tell() -> None:
            if next(written) == 2:
                loop.call_soon_threadsafe(both.set)

        harness.passed.at["storage.plan.after_rename"] = tell
        first = asyncio.ensure_future(store.plans.put(made()))
        second = asyncio.ensure_future(store.plans.put(made(revision=2)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second.cancel()
        await first
        async with asyncio.timeout(60):
            await both.wait()

        assert second.cancelled()
        assert await store.plans.get("sp_1") == made(revision=2)

    async def test_changes_of_one_plan_come_in_their_order(self, harness: StoreHarness) -> None:
        """Of many concurrent changes, the last one stays, whole."""
        store = await harness.open()
        await asyncio.gather(*(store.plans.put(made(revision=number, intent="x" * number)) for number in range(1, 30)))

        assert await store.plans.get("sp_1") == made(revision=29, intent="x" * 29)
        assert await listed(harness) == [("sp_1", "draft", 29)]

    async def test_of_two_changes_of_the_same_plan_one_counts(self, harness: StoreHarness) -> None:
        """A change whose caller was cancelled is made, and a conflicting change that does not know it is refused."""
        store = await harness.open()
        await store.plans.put(made())
        first = asyncio.ensure_future(store.plans.put(made(revision=2, intent="First"), known=made()))
        second = asyncio.ensure_future(store.plans.put(made(revision=2, intent="Second"), known=made()))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(errors.Conflict) as refused:
            await second

        assert refused.value.code == "plan_changed"
        assert await store.plans.get("sp_1") == made(revision=2, intent="First")


class TestByHand:
    """Files written by a person."""

    async def test_a_file_written_during_a_change_is_shown(self, harness: StoreHarness) -> None:
        """A file that a person writes during a change is shown, not the change."""
        store = await harness.open()
        harness.passed.at["storage.plan.after_rename"] = lambda: by_hand(harness, json.dumps(BY_HAND).encode())
        await store.plans.put(made())
        found = await store.plans.get("sp_1")

        assert found is not None
        assert (found.status, len(found.tasks)) == (PlanState.RUNNING, 2)
        assert await listed(harness) == [("sp_1", "running", 1)]

    @pytest.mark.parametrize("moment", [None, "before_write", "before_rename"])
    @pytest.mark.parametrize(
        ("content", "code"),
        [(json.dumps(BY_HAND).encode(), "plan_changed"), (b"{", "plan_damaged"), (None, "plan_changed")],
    )
    async def test_an_unread_edit_is_never_overwritten(
        self, harness: StoreHarness, moment: str | None, content: bytes | None, code: str
    ) -> None:
        """A change of a plan that was edited meanwhile is refused until its last moment, and leaves no file."""
        store = await harness.open()
        await store.plans.put(made())

        def meddle() -> None:
            if content is None:
                harness.files().remove(PATH)
            else:
                by_hand(harness, content)

        if moment is None:
            meddle()
        else:
            harness.passed.at[f"storage.plan.{moment}"] = meddle
        with pytest.raises(errors.Conflict) as refused:
            await store.plans.put(made(revision=2), known=made())

        assert refused.value.code == code
        assert harness.files().names("sessions/sp_1") == ([] if content is None else ["plan.json"])
        assert content is None or harness.files().read(PATH) == content

    async def test_a_file_with_the_same_content_may_be_overwritten(self, harness: StoreHarness) -> None:
        """A file with the same content in another format can be overwritten, also after a restart."""
        store = await harness.open()
        known = made(tasks=(Task(id=1, description="First", recipe_id="draft", args={"b": [1.5, None], "a": {}}),))
        await store.plans.put(known)
        by_hand(harness, json.dumps(known.to_json(), indent=4, sort_keys=True).encode())
        await store.plans.put(dataclasses.replace(known, revision=2), known=known)
        store = await harness.crash()
        await store.plans.put(dataclasses.replace(known, revision=3), known=dataclasses.replace(known, revision=2))

        assert await listed(harness) == [("sp_1", "draft", 3)]

    async def test_the_letter_of_the_document_is_enough(self, harness: StoreHarness) -> None:
        """A plan without optional fields is read and listed, and its unknown fields are kept."""
        store = await harness.open()
        by_hand(harness, json.dumps(BY_HAND, indent=2).encode())
        found = await store.plans.get("sp_1")
        assert found is not None
        await store.plans.put(found)
        kept = json.loads(harness.files().read(PATH))

        assert (found.revision, found.created_at, found.updated_at) == (1, "2026-02-10T14:00:00.000Z", found.created_at)
        assert [(task.attempt, task.dod) for task in found.tasks] == [(1, "Scene file exists"), (0, "")]
        assert (kept["color"], kept["tasks"][1]["mine"]) == ("red", {"kept": True})
        assert await store.plans.get("sp_1") == found
        assert await listed(harness) == [("sp_1", "running", 1)]

    @pytest.mark.parametrize(
        ("content", "path"),
        [
            (b"", "$"),
            (b"{", "$"),
            (b"[" * 100_000, "$"),
            (b'{"tasks": NaN}', "$"),
            (b"\xff\xfe", "$"),
            (b"[]", "$"),
            (b'{"session_id": "sp_1"}', "$.tasks"),
            (json.dumps(BY_HAND | {"session_id": "sp_2"}).encode(), "$.session_id"),
            (
                json.dumps(BY_HAND | {"tasks": [{"id": 1, "description": "x", "deps": [2]}]}).encode(),
                "$.tasks[0].deps[0]",
            ),
        ],
    )
    async def test_a_damaged_plan_is_refused_and_unchanged(
        self, harness: StoreHarness, content: bytes, path: str
    ) -> None:
        """A damaged plan is refused and listed with the place of its flaw, and its file stays unchanged."""
        store = await harness.open()
        await store.plans.put(made("sp_2"))
        by_hand(harness, content)
        with pytest.raises(errors.Conflict) as refused:
            await store.plans.get("sp_1")
        shown = [each for each in await store.plans.list(PlanQuery()) if each.session_id != "sp_2"]

        assert (refused.value.code, refused.value.detail["file"]) == ("plan_damaged", PATH)
        assert [flaw["path"] for flaw in refused.value.detail["flaws"]] == [path]
        assert harness.files().read(PATH) == content
        # A sound plan in the folder of another plan is a copy.
        assert path == "$.session_id" or [
            (each.session_id, each.status, each.error and each.error["message"]) for each in shown
        ] == [("sp_1", "paused", refused.value.message)]

    async def test_a_damaged_one_is_logged_once(self, harness: StoreHarness, caplog: pytest.LogCaptureFixture) -> None:
        """Listing plans logs a file that is not a plan once, and again only after it has changed."""
        store = await harness.open()
        await store.plans.put(made())
        for content in (b"{", b"[12"):
            by_hand(harness, content)
            await listed(harness)
            await listed(harness)

        assert [record.getMessage() for record in caplog.records] == [f"{PATH} cannot be read as a plan"] * 2

    async def test_a_change_by_hand_is_listed_at_once(self, harness: StoreHarness) -> None:
        """Files that a person adds, changes, breaks or removes are listed accordingly, without a restart."""
        store = await harness.open()
        await store.plans.put(made())
        assert await listed(harness) == [("sp_1", "draft", 1)]
        by_hand(harness, json.dumps(BY_HAND | {"revision": 7}).encode())
        assert await listed(harness) == [("sp_1", "running", 7)]
        by_hand(harness, b"{")
        assert await listed(harness) == [("sp_1", "running", 7)]
        assert [each.error and each.error["code"] for each in await store.plans.list(PlanQuery())] == ["plan_damaged"]
        by_hand(harness, json.dumps(BY_HAND).encode())
        by_hand(harness, json.dumps(BY_HAND | {"session_id": "sp_3"}).encode(), "sp_3")
        assert await listed(harness) == [("sp_3", "running", 1), ("sp_1", "running", 1)]
        harness.files().remove(PATH)

        assert await listed(harness) == [("sp_3", "running", 1)]
        assert await store.plans.get("sp_1") is None

    async def test_plan_lists_skip_other_folders(self, harness: StoreHarness) -> None:
        """Lists skip folders without a plan, plans in a folder of another name, and the folder of conversations."""
        store = await harness.open()
        files = harness.files()
        for session_id in ("copy", "agents"):
            by_hand(harness, json.dumps(BY_HAND).encode(), session_id)
        by_hand(harness, json.dumps(BY_HAND | {"session_id": "agents"}).encode(), "agents")
        files.add_folder("sessions/empty")
        files.write("sessions/stray", b"{}", sync=True)
        files.add_folder("sessions/odd")
        files.add_folder("sessions/odd/plan.json")

        assert await listed(harness) == []
        assert await store.plans.get("agents") is None
        assert await store.plans.get("empty") is None
        assert await store.plans.get("stray") is None
        assert await store.plans.get("../sp_1") is None


class TestLists:
    """Many plans."""

    async def test_pages_and_filters(self, harness: StoreHarness) -> None:
        """Plans are listed newest first, page by page, those of one instant by id, and can be filtered by state."""
        store = await harness.open()
        for number in range(5):
            status = PlanState.DONE if number == 2 else PlanState.DRAFT
            await store.plans.put(made(f"sp_{number}", f"2026-02-10T14:3{number // 2}:00.000Z", status=status))
        order = [session_id for session_id, _, _ in await listed(harness)]
        page = await store.plans.list(PlanQuery(limit=2))
        behind = await listed(harness, limit=2, cursor=(page[-1].created_at, page[-1].session_id))

        assert order == ["sp_4", "sp_3", "sp_2", "sp_1", "sp_0"]
        assert [session_id for session_id, _, _ in behind] == order[2:4]
        assert await listed(harness, status="done") == [("sp_2", "done", 1)]
        assert page[0].tasks == {"pending": 2}

    async def test_a_file_is_read_once(self, harness: StoreHarness) -> None:
        """A list reads only new and changed files, and none that the store itself has written."""
        store = await harness.open()
        for number in range(3):
            by_hand(harness, json.dumps(BY_HAND | {"session_id": f"sp_{number}"}).encode(), f"sp_{number}")
        counting = counted(harness)
        await listed(harness)
        await store.plans.put(made("sp_0", revision=2))
        await store.plans.put(made("sp_9"))
        by_hand(harness, b"{", "sp_2")
        assert len(await listed(harness)) == 4
        await listed(harness)

        read = [path.split("/")[1] for path in counting.read_files]
        assert sorted(read) == ["sp_0", "sp_1", "sp_2", "sp_2"]


def test_a_long_intent_is_cut_in_lists() -> None:
    """A summary contains the beginning of a long intent."""
    found = plans.summary(made(intent="word " * 1000)).intent

    assert found is not None
    assert found.startswith("word word")
    assert len(found) <= plans.SHOWN_CHARACTERS
    assert plans.summary(made(intent="one\ntwo")).intent == "one\ntwo"
