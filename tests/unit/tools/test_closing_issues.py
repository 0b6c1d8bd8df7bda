"""Issues of findings and failed checks are closed when a later run no longer finds them, and only then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app import clock
from app.domain import issues, operations, records
from app.engine import ports
from app.storage import memory_store
from app.storage.runs import disk_store
from app.tools import issue_performer
from tests.unit.engine import samples

ROOT = Path("/project")


class Check:
    """A recipe of checks that runs repeatedly over a real store."""

    def __init__(self, store: disk_store.DiskStore) -> None:
        self.store = store
        self.clock = clock.FakeClock()
        self._performer = issue_performer.IssuePerformer(store.issues, self.clock, ROOT)
        self._runs = 0

    async def run(
        self, *found: str, looked_at: tuple[str, ...] = ("Story",), left_out: tuple[str, ...] = (), **facts: Any
    ) -> list[str]:
        """Open findings (`file: words`) in a new run, and return the titles that the run closed."""
        self._runs += 1
        self.clock.advance(60)
        start = self.start(**facts)
        opened = [await self.perform(start, f"finding[{index}]", _found(one)) for index, one in enumerate(found)]
        names = tuple(output["issue_id"] for output in opened)
        close = operations.CloseFindings(found=names, looked_at=looked_at, left_out=left_out)
        closed = (await self.perform(start, "findings.close", close))["closed"]
        return [str((await self.store.issues.get(name))["title"]) for name in closed]

    def start(self, **facts: Any) -> Any:
        """Return the facts of the next run."""
        given = {"run_id": f"run-{self._runs}", "working_dir": str(ROOT), "recipe_id": "check"}
        return samples.start(**(given | {"created_at": clock.stamp(self.clock.now())} | facts))

    async def perform(self, start: Any, key: str, operation: operations.Operation) -> Any:
        """Perform an operation of a run."""
        call = ports.Call(
            run=start, key=key, attempt=1, operation=operation, place=records.Place(step_id=key), due_at=None,
            read_blob=None, write_log=None,  # type: ignore[arg-type]
        )  # fmt: skip
        return (await self._performer.perform(call)).output

    async def shown(self) -> dict[str, str]:
        """Return the status of every issue by its title."""
        return {row.title: row.status for row in await self.store.issues.list(issues.IssueQuery())}


def _found(told: str) -> operations.OpenIssue:
    files, words = told.split(": ")
    named = files.split("+")
    identity = {"kind": "name", "file": named[0], "words": words, "files": named}
    return operations.OpenIssue(title=told, facts={"kind": "finding"}, severity="warning", identity=identity)


@pytest.fixture
async def check() -> AsyncIterator[Check]:
    """Return a check over an empty store."""
    async with memory_store.MemoryStore(clock=clock.FakeClock()) as store:
        yield Check(store)


async def test_a_repeated_finding_updates_its_issue(check: Check) -> None:
    """A second run that finds the same thing updates the issue, names itself in it and creates no other."""
    await check.run("Story/a.md: slip")
    closed = await check.run("Story/a.md: slip")
    (row,) = await check.store.issues.list(issues.IssueQuery(severity="warning", recipe_id="check"))

    assert closed == []
    assert (row.status, row.run_id, row.revision) == ("open", "run-2", 2)


async def test_a_vanished_finding_closes_its_issue_with_a_note(check: Check) -> None:
    """A run that no longer finds something closes its issue with a note; a later finding opens the issue again."""
    await check.run("Story/a.md: slip")
    closed = await check.run()
    gone = await check.run()
    await check.run("Story/a.md: slip")
    (row,) = await check.store.issues.list(issues.IssueQuery())
    notes: Any = (await check.store.issues.get(row.issue_id))["notes"]

    assert (closed, gone) == (["Story/a.md: slip"], [])
    assert [(note["text"], note["status"]) for note in notes] == [
        ("Not found any more by the run run-2.", "closed"),
        ("Found again by the run run-4.", "open"),
    ]


async def test_a_run_closes_only_issues_of_its_own_scene(check: Check) -> None:
    """A run over one scene closes only issues that concern this scene alone, not those of similar names."""
    everything = ("Story/3.md: a", "Story/5.md: b", "Story/3.md+Story/5.md: c", "Story/3.md.bak: d", "Story/3/x.md: e")
    await check.run(*everything)
    closed = await check.run(looked_at=("Story/3.md",))

    assert closed == ["Story/3.md: a"]
    assert sorted(await check.run(looked_at=("Story", "Cards"))) == sorted(everything[1:])


async def test_a_finding_in_a_file_that_was_not_read_stays_open(check: Check) -> None:
    """A run closes no issue about a file, or a folder, that its tool could not read."""
    await check.run(
        "Story/a.md: one", "Story/b.md+Story/a.md: two", "Story/x/c.md: three", "Story: four", "Story/d.md: 5"
    )

    assert await check.run(left_out=("Story/a.md", "Story/x")) == ["Story/d.md: 5"]


async def test_a_run_closes_no_issues_of_others(check: Check) -> None:
    """A run does not close findings of another recipe or workspace, or issues written by people."""
    await check.run("Story/a.md: one", recipe_id="other")
    await check.run("Story/a.md: two", working_dir=str(ROOT / "book"))
    await check.store.issues.open(issues.made("iss_p", clock.stamp(check.clock.now()), **_by_hand("check")))
    closed = await check.run(looked_at=(".",))

    assert closed == []
    assert set((await check.shown()).values()) == {"open"}


async def test_a_newer_finding_is_left_alone(check: Check) -> None:
    """A run that began before another run found something does not close that issue."""
    early = check.start(run_id="early")
    await check.run("Story/a.md: slip")
    closed = await check.perform(early, "findings.close", operations.CloseFindings(found=(), looked_at=(".",)))

    assert closed == {"closed": []}


async def test_a_second_try_names_the_issues_closed_by_the_first(check: Check) -> None:
    """A second try of the step closes the remaining issues and also names those that the first try closed."""
    await check.run("Story/a.md: one", "Story/b.md: two")
    start = check.start(run_id="later", created_at=clock.stamp(check.clock.now()))
    close = operations.CloseFindings(found=(), looked_at=("Story",))
    tries = []
    for _ in range(2):
        check.clock.advance(5)
        tries.append((await check.perform(start, "findings.close", close))["closed"])

    assert len(tries[0]) == 2
    assert sorted(tries[1]) == sorted(tries[0])


async def test_checks_that_are_met_close_their_issues(check: Check) -> None:
    """Met checks close the open issues of the named steps of the same run; a step without an issue is ignored."""
    start = check.start()
    await check.perform(start, "dod[0].issue", operations.OpenIssue(title="not met", severity="error"))
    met = operations.CloseFailedChecks(keys=("dod[0].issue", "dod[1].issue"))
    closed = await check.perform(start, "dod.close", met)

    assert closed == {"closed": [issue_performer.issue_id(start.run_id, "dod[0].issue")]}
    assert await check.shown() == {"not met": "closed"}


def _by_hand(recipe_id: str) -> dict[str, Any]:
    return {
        "title": "By hand", "body": "", "kind": "finding", "run_id": None, "session_id": None, "receipts": [],
        "recipe_id": recipe_id,
    }  # fmt: skip
