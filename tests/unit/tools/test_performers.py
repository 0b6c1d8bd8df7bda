"""The performers of tools, checks, files and issues."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from app import clock, errors
from app.domain import operations, plain
from app.engine import ports
from app.storage import memory_store
from app.tools import commits
from app.tools.checks import CheckPerformer, CommitFilePerformer
from app.tools.issue_performer import IssuePerformer, issue_id
from app.tools.registry import ToolRegistry, bundled_tools
from app.tools.tool_performer import ToolPerformer
from app.tools.workspace import Workspace, Workspaces
from tests.unit.calls import Harness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    project = tmp_path / "project"
    project.mkdir()
    return Harness(working_dir=project)


@pytest.fixture
def workspaces(harness: Harness) -> Workspaces:
    return Workspaces([harness.working_dir])


class Held:
    """A tool that waits for the test, and records in which thread it ran."""

    name: str = "held"
    description: str = "Waits."

    def __init__(self) -> None:
        self.args_schema: plain.Object = {}
        self.go = threading.Event()
        self.running = 0
        self.most_running = 0
        self._lock = threading.Lock()

    def execute(self, args: plain.Object, workspace: Workspace) -> ports.ToolOutput:
        """Wait, then return."""
        with self._lock:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        self.go.wait(30)
        with self._lock:
            self.running -= 1
        return ports.ToolOutput(payload={"thread": threading.current_thread().name}, summary="s" * 999)


def _registry(held: Held) -> ToolRegistry:
    return ToolRegistry(lambda: [held])


def tool(name: str = "held", **given: Any) -> operations.ToolCall:
    """Return a tool call."""
    return operations.ToolCall(tool=name, args=given.pop("args", {}), **given)


class TestTools:
    """ToolPerformer."""

    @pytest.fixture
    def tools(self, workspaces: Workspaces) -> ToolPerformer:
        def route(text: str) -> Any:
            raise AssertionError(text)

        return ToolPerformer(bundled_tools(route), workspaces)

    async def test_a_tool_reads_the_workspace_of_its_run(self, harness: Harness, tools: ToolPerformer) -> None:
        """A tool reads the workspace of its run; the payload is the output, the summary has at most 200 characters."""
        (harness.working_dir / "scene.md").write_text("# Scene 1\n\nKael walked quickly to the gate. It was closed.\n")
        result = await tools.perform(harness.call(tool("prose_analyzer", args={"scene_path": "scene.md"})))

        assert result.output["scene_path"] == "scene.md"
        assert result.summary
        assert len(result.summary) <= 200

    async def test_invalid_arguments_fail_the_step_with_every_flaw(
        self, harness: Harness, tools: ToolPerformer
    ) -> None:
        """Arguments that do not fit the tool's schema fail the step with every flaw."""
        call = harness.call(tool("prose_analyzer", args={"scene": "x", "scene_path": 5}))
        with pytest.raises(errors.ToolFailed) as failed:
            await tools.perform(call)

        assert failed.value.code == "invalid_args"
        assert {flaw["path"] for flaw in failed.value.detail["flaws"]} == {"$.scene", "$.scene_path"}

    @pytest.mark.parametrize(
        ("name", "args", "code"),
        [
            ("prose_analyser", {}, "unknown_tool"),
            ("prose_analyzer", {"scene_path": "../secret"}, "path_outside_workspace"),
            ("prose_analyzer", {"scene_path": "none.md"}, "file_not_found"),
        ],
    )
    async def test_failures_of_tools_are_failures_of_steps(
        self, harness: Harness, tools: ToolPerformer, name: str, args: dict[str, Any], code: str
    ) -> None:
        """An expected failure of a tool fails the step with its code."""
        with pytest.raises(errors.ToolFailed) as failed:
            await tools.perform(harness.call(tool(name, args=args)))

        assert failed.value.code == code

    async def test_a_tool_that_overruns_its_time_fails(self, harness: Harness, workspaces: Workspaces) -> None:
        """A tool that overruns its time-out fails the step, even if its thread takes longer."""
        held = Held()
        with pytest.raises(errors.ToolFailed) as failed:
            await ToolPerformer(_registry(held), workspaces).perform(harness.call(tool(timeout_seconds=0.05)))
        held.go.set()

        assert failed.value.code == "tool_timeout"
        assert failed.value.detail == {"tool": "held", "timeout_seconds": 0.05}

    async def test_tools_run_so_many_at_a_time(self, harness: Harness, workspaces: Workspaces) -> None:
        """No more tools run at a time than the limit, overrun ones included, and every waiting call gets its turn."""
        held = Held()
        performer = ToolPerformer(_registry(held), workspaces, at_a_time=2)
        with pytest.raises(errors.ToolFailed):
            await performer.perform(harness.call(tool(timeout_seconds=0.05)))
        asked = [asyncio.ensure_future(performer.perform(harness.call(tool()))) for _ in range(5)]
        await asyncio.wait(asked, timeout=0.1)
        running = held.running
        held.go.set()
        results = await asyncio.gather(*asked)

        assert running == 2
        assert held.most_running == 2
        assert {result.summary for result in results} == {"s" * 200}

    async def test_tools_keep_the_loop_free(self, harness: Harness, workspaces: Workspaces) -> None:
        """A tool runs in a thread other than the main one."""
        held = Held()
        held.go.set()
        result = await ToolPerformer(_registry(held), workspaces).perform(harness.call(tool()))

        assert result.output["thread"] != threading.main_thread().name

    async def test_a_cancelled_tool_is_not_waited_for(self, harness: Harness, workspaces: Workspaces) -> None:
        """A cancellation ends the step at once, and the next tool runs as usual."""
        held = Held()
        performer = ToolPerformer(_registry(held), workspaces)
        asked = asyncio.ensure_future(performer.perform(harness.call(tool())))
        await asyncio.wait([asked], timeout=0.05)
        asked.cancel()
        await asyncio.wait([asked], timeout=20)
        held.go.set()

        assert asked.cancelled()
        assert (await performer.perform(harness.call(tool()))).output


class TestWorkspaces:
    """Workspaces of runs."""

    @pytest.mark.parametrize("folder", ["", "..", "../other", "/", "../link", "nul\0"])
    async def test_a_run_from_elsewhere_opens_no_other_folder(
        self, harness: Harness, workspaces: Workspaces, tmp_path: Path, folder: str
    ) -> None:
        """A run whose `working_dir` is outside the allowed folders, links followed, has no workspace."""
        (tmp_path / "other").mkdir()
        (tmp_path / "link").symlink_to("/")
        harness.working_dir = Path(str(harness.working_dir / folder)) if folder else Path("relative")
        with pytest.raises(errors.ToolFailed) as failed:
            await CheckPerformer(workspaces).perform(
                harness.call(operations.Check(check="file_exists", subject="etc/passwd"))
            )

        assert failed.value.code == "workspace_not_allowed"

    def test_a_folder_below_a_root_is_a_workspace(self, harness: Harness, workspaces: Workspaces) -> None:
        """Runs may work in any folder below an allowed one."""
        inner = harness.working_dir / "inner"
        inner.mkdir()
        harness.working_dir = inner

        assert workspaces.of(harness.call(tool()).run).root == inner.resolve()


class TestChecks:
    """CheckPerformer."""

    @pytest.mark.parametrize(
        ("path", "holds"), [("there.md", True), ("./there.md", True), ("absent.md", False), ("folder", False)]
    )
    async def test_a_file_exists_or_not(self, harness: Harness, workspaces: Workspaces, path: str, holds: bool) -> None:
        """`file_exists` holds only for a regular file inside the workspace."""
        (harness.working_dir / "there.md").touch()
        (harness.working_dir / "folder").mkdir()
        result = await CheckPerformer(workspaces).perform(
            harness.call(operations.Check(check="file_exists", subject=path))
        )

        assert result.output == {"check": "file_exists", "path": path, "holds": holds}

    @pytest.mark.parametrize(
        ("check", "subject", "code"),
        [
            ("file_exits", "a", "unknown_check"),
            ("file_exists", None, "invalid_subject"),
            ("file_exists", "", "invalid_subject"),
            ("file_exists", {"path": "a"}, "invalid_subject"),
            ("file_exists", "../a", "path_outside_workspace"),
        ],
    )
    async def test_an_impossible_check_fails_the_step(
        self, harness: Harness, workspaces: Workspaces, check: str, subject: Any, code: str
    ) -> None:
        """A check that cannot be made fails the step instead of returning that it does not hold."""
        with pytest.raises(errors.ToolFailed) as failed:
            await CheckPerformer(workspaces).perform(harness.call(operations.Check(check=check, subject=subject)))

        assert failed.value.code == code


class TestCommits:
    """CommitFilePerformer."""

    @pytest.fixture
    def commits(self, workspaces: Workspaces) -> CommitFilePerformer:
        return CommitFilePerformer(workspaces)

    @pytest.mark.parametrize("blob", [False, True])
    async def test_a_text_is_written(self, harness: Harness, commits: CommitFilePerformer, blob: bool) -> None:
        """A text or a blob of a text is written byte for byte, and the output has path, hash and size."""
        text = "Käel\r\narrives\n"
        given = harness.blob(text) if blob else text
        result = await commits.perform(harness.call(operations.CommitFile(path="Story//./Scenes/a.md", text=given)))

        assert (harness.working_dir / "Story/Scenes/a.md").read_bytes() == text.encode()
        assert result.output == {
            "path": "Story/Scenes/a.md",
            "sha256": plain.sha256(text.encode()),
            "size_bytes": len(text.encode()),
        }

    async def test_a_later_try_finds_its_own_file(self, harness: Harness, commits: CommitFilePerformer) -> None:
        """A retry after a crash finds its own file, returns the same result and writes no file."""
        operation = operations.CommitFile(path="./a.md", text="Kael arrives.")
        first = await commits.perform(harness.call(operation))
        written = (harness.working_dir / "a.md").stat()
        second = await commits.perform(harness.call(operation, attempt=2))
        now = (harness.working_dir / "a.md").stat()

        assert first == second
        assert (now.st_ino, now.st_mtime_ns) == (written.st_ino, written.st_mtime_ns)

    @pytest.mark.parametrize(("attempt", "found"), [(1, "Kael arrives."), (1, "Mine."), (2, "Mine.")])
    async def test_an_existing_foreign_file_is_refused(
        self, harness: Harness, commits: CommitFilePerformer, attempt: int, found: str
    ) -> None:
        """A first try refuses any existing file; a retry refuses one with other content."""
        (harness.working_dir / "a.md").write_text(found)
        with pytest.raises(errors.ToolFailed) as failed:
            await commits.perform(
                harness.call(operations.CommitFile(path="a.md", text="Kael arrives."), attempt=attempt)
            )

        assert failed.value.code == "file_exists"
        assert (harness.working_dir / "a.md").read_text() == found

    @pytest.mark.parametrize("exists", [False, True])
    async def test_the_second_path_is_written_where_the_first_is_taken(
        self, harness: Harness, commits: CommitFilePerformer, exists: bool
    ) -> None:
        """An existing file stays and the second path is written; a retry finds its own file under either path."""
        if exists:
            (harness.working_dir / "a.md").write_text("Mine.")
        operation = operations.CommitFile(path="a.md", text="Kael arrives.", otherwise="Drafts/b.md")
        first = await commits.perform(harness.call(operation))
        second = await commits.perform(harness.call(operation, attempt=2))

        assert first == second
        assert first.output["path"] == ("Drafts/b.md" if exists else "a.md")
        assert (harness.working_dir / "a.md").read_text() == ("Mine." if exists else "Kael arrives.")
        assert (harness.working_dir / "Drafts").exists() is exists

    async def test_a_file_is_replaced_where_that_is_asked_for(
        self, harness: Harness, commits: CommitFilePerformer
    ) -> None:
        """`overwrite` replaces the old content."""
        (harness.working_dir / "a.md").write_text("old")
        await commits.perform(harness.call(operations.CommitFile(path="a.md", text="new", overwrite=True)))

        assert (harness.working_dir / "a.md").read_text() == "new"

    @pytest.mark.parametrize(
        ("path", "text", "code"),
        [
            ("../a.md", "x", "path_outside_workspace"),
            (".control-room/agents.json", "x", "path_outside_workspace"),
            ("a.md", {"no": "text"}, "not_text"),
            ("a.md", None, "not_text"),
        ],
    )
    async def test_a_forbidden_write_is_refused(
        self, harness: Harness, commits: CommitFilePerformer, path: str, text: Any, code: str
    ) -> None:
        """Paths outside the workspace and values that are not text are refused, at a retry as well."""
        for attempt in (1, 2):
            with pytest.raises(errors.ToolFailed) as failed:
                await commits.perform(harness.call(operations.CommitFile(path=path, text=text), attempt=attempt))

            assert failed.value.code == code
        assert list(harness.working_dir.iterdir()) == []

    async def test_a_write_that_has_begun_is_finished_before_a_cancellation(
        self, harness: Harness, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A cancelled step ends only after a write that has begun is complete."""
        begun, go = threading.Event(), threading.Event()
        put = commits.put

        def held_put(*args: Any, **kwargs: Any) -> None:
            begun.set()
            go.wait(30)
            put(*args, **kwargs)

        monkeypatch.setattr(commits, "put", held_put)
        asked = asyncio.ensure_future(
            CommitFilePerformer(workspaces).perform(harness.call(operations.CommitFile(path="a.md", text="x")))
        )
        await asyncio.to_thread(begun.wait, 30)
        asked.cancel()
        await asyncio.wait([asked], timeout=0.05)
        early = asked.done()
        go.set()
        await asyncio.wait([asked], timeout=60)

        assert not early
        assert asked.cancelled()
        assert (harness.working_dir / "a.md").read_text() == "x"

    async def test_a_later_try_makes_the_names_durable(
        self, harness: Harness, commits: CommitFilePerformer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The try that finds the file written syncs the folders, because the first may have died before it did."""
        operation = operations.CommitFile(path="Story/Scenes/a.md", text="x")
        await commits.perform(harness.call(operation))
        synced: list[str] = []
        fsync = os.fsync

        def noting(descriptor: int) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", noting)
        await commits.perform(harness.call(operation, attempt=2))

        root = harness.working_dir.resolve()
        assert synced == [str(root / "Story/Scenes"), str(root / "Story"), str(root)]


class TestIssues:
    """IssuePerformer."""

    async def test_an_issue_has_all_its_fields(self, harness: Harness) -> None:
        """An issue has its run, session, step, receipts and facts."""
        operation = operations.OpenIssue(title="No draft", body="It is missing.", facts={"check": 1}, receipts=("r1",))
        name = issue_id("20260210T143000Z-abc123", "dod.0.issue")
        async with memory_store.MemoryStore(clock=clock.FakeClock()) as store:
            performer = IssuePerformer(store.issues, clock.FakeClock(), harness.working_dir)
            result = await performer.perform(harness.call(operation, key="dod.0.issue"))
            kept = await store.issues.get(name)

        assert result.output == {"issue_id": name}
        assert [kept] == [
            {
                "issue_id": name,
                "title": "No draft",
                "body": "It is missing.",
                "kind": "note",
                "severity": None,
                "recipe_id": None,
                "facts": {"check": 1},
                "status": "open",
                "run_id": "20260210T143000Z-abc123",
                "session_id": "sess_1",
                "key": "dod.0.issue",
                "receipts": ["r1"],
                "created_at": "2026-02-10T14:30:00.000Z",
                "updated_at": "2026-02-10T14:30:00.000Z",
                "closed_at": None,
                "closed_by": None,
                "edited_at": None,
                "revision": 1,
                "notes": [],
                "request_sha256": None,
            }
        ]

    def test_the_id_comes_from_run_and_step(self) -> None:
        """The id of an issue depends on the run and the step only."""
        assert issue_id("r", "a") == issue_id("r", "a") != issue_id("r", "b")
        assert issue_id("r", "a").startswith("iss_")
        assert len(issue_id("r", "a")) == 24
