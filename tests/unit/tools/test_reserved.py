"""Reserved folders: no path and no operation reaches the data of Control Room or of git."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app import clock, errors
from app.agents import backends
from app.agents.configuration import BackendConfig
from app.agents.performer import AgentPerformer
from app.cli.orchestrate import processed
from app.domain import file_operations, operations, records
from app.processes import commands as processes
from app.processes import folders, supervisor
from app.storage.agent_sessions import MemoryAgentSessions
from app.tools import checks, commands, file_performers, globs, moves
from app.tools.reserved import Reserved, Root
from app.tools.workspace import Workspace, Workspaces
from tests.unit.agents import around
from tests.unit.calls import Harness

OUTSIDE, NOT_ALLOWED = "path_outside_workspace", "workspace_not_allowed"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with data in an ordinary folder, other reserved folders, and paths to them."""
    project = tmp_path / "project"
    for name in (
        "book/state/runs",
        ".git/hooks",
        "other/.control-room/runs",
        ".orchestrate/runs/own/artifacts",
        "work",
    ):
        (project / name).mkdir(parents=True)
    for name in ("book/state/journal.md", ".git/journal.md", "other/.control-room/journal.md"):
        (project / name).write_text("secret\n")
    (project / ".orchestrate/runs/own/journal.md").write_text("secret\n")
    (project / "link").symlink_to("book/state")
    (project / "way").symlink_to("book")
    (project / "absolute").symlink_to(project / ".git")
    return project


@pytest.fixture
def places(project: Path) -> Workspaces:
    return Workspaces([project], Reserved(folders=(project / "book" / "state",)))


@pytest.fixture
async def running(tmp_path: Path) -> Any:
    started = supervisor.Supervisor(tmp_path / "processes", clock.RandomIds(), os.environ)
    yield started
    await started.close()


WAYS = [
    "book/state",
    "link",
    "way/state",
    "absolute",
    ".git",
    ".GIT",
    "other/.control-room",
    ".orchestrate/runs/own",
    ".orchestrate",
]


def performing(places: Workspaces, running: supervisor.Supervisor) -> dict[str, Callable[[str], tuple[Any, Any]]]:
    """Return the performers that reach files, each with its operation for a folder."""
    command = commands.CommandPerformer(running, places, os.environ)
    moving = moves.MoveFilePerformer(places)
    checking, committing = checks.CheckPerformer(places), checks.CommitFilePerformer(places)

    def write(way: str) -> operations.Operation:
        return operations.CommitFile(path=f"{way}/new.md", text="x", overwrite=True)

    return {
        "read": lambda way: (
            file_performers.ReadFilesPerformer(places),
            file_operations.ReadFiles(paths=(f"{way}/journal.md",)),
        ),
        "find": lambda way: (
            file_performers.FindFilesPerformer(places),
            file_operations.FindFiles(patterns=(f"{way}/*",)),
        ),
        "check": lambda way: (checking, operations.Check(check="file_exists", subject=f"{way}/journal.md")),
        "commit": lambda way: (committing, write(way)),
        "move in": lambda way: (moving, file_operations.MoveFile(source="work", folder=way)),
        "move out": lambda way: (moving, file_operations.MoveFile(source=f"{way}/journal.md", folder="work")),
        "output": lambda way: (command, operations.Command(argv=("echo",), output_file=f"{way}/journal.md")),
        "cwd": lambda way: (command, operations.Command(argv=("pwd",), cwd=way)),
    }


def contents(project: Path) -> dict[Path, bytes | None]:
    """Return all files of the project with their contents, and all folders."""
    return {path: path.read_bytes() if path.is_file() else None for path in project.rglob("*")}


@pytest.mark.parametrize("way", WAYS)
async def test_no_path_leads_there(project: Path, places: Workspaces, running: supervisor.Supervisor, way: str) -> None:
    """Reads, globs, checks, commits, moves, outputs and folders of commands refuse every path to a reserved folder."""
    before = contents(project)
    codes = {}
    for name, asked in performing(places, running).items():
        performer, operation = asked(way)
        with pytest.raises(errors.StepError) as failed:
            await performer.perform(Harness(working_dir=project).call(operation))
        codes[name] = failed.value.code

    assert set(codes.values()) == {OUTSIDE}
    assert contents(project) == before


def test_reserved_folders_are_not_listed(project: Path, places: Workspaces) -> None:
    """Globs and scans list neither reserved folders nor their contents."""
    (project / "book" / "chapter.md").touch()
    workspace = places.of(Harness(working_dir=project).call(operations.Check(check="file_exists", subject="x")).run)

    assert [file.path for file in workspace.scan().files] == ["book/chapter.md"]
    assert globs.fitting(workspace.place, "book/*") == ["book/chapter.md"]
    assert globs.fitting(workspace.place, ".*") == []
    with pytest.raises(errors.ToolFailed):
        globs.fitting(workspace.place, "*/state/journal.md")


@pytest.mark.parametrize(
    "way", ["book/state", "book/state/runs", *WAYS[4:5], "other/.control-room/runs", ".orchestrate/runs"]
)
async def test_a_run_in_a_reserved_folder_gets_no_workspace(
    project: Path, places: Workspaces, running: supervisor.Supervisor, way: str
) -> None:
    """A run whose working folder is reserved gets no workspace for a tool, a command or an agent."""
    harness = Harness(working_dir=project / way)
    speaking = backends.Backends({"one": BackendConfig(name="one", type="local")}, around.surroundings())
    asking = AgentPerformer(speaking, around.conversations(), places.check)
    for performer, operation in (
        (asking, operations.AgentCall(agent_id="a", backend="one", prompt=("Say PONG.",))),
        (commands.CommandPerformer(running, places, os.environ), operations.Command(argv=("pwd",))),
        (file_performers.FindFilesPerformer(places), file_operations.FindFiles(patterns=("*",))),
    ):
        with pytest.raises(errors.StepError) as failed:
            await performer.perform(harness.call(operation))

        assert failed.value.code == NOT_ALLOWED


async def test_a_model_behind_http_needs_no_working_folder(project: Path, places: Workspaces) -> None:
    """A prompt without a conversation is not bound to the working folder; one in a conversation is refused there."""
    harness = Harness(working_dir=project / "book/state")
    service = BackendConfig(name="one", type="openai", base_url="http://127.0.0.1:1", models={"sonnet": "a"})
    speaking = backends.Backends({"one": service}, around.surroundings())
    asking = AgentPerformer(speaking, around.conversations(), places.check)
    codes = []
    for conversation in (None, str(uuid.uuid4())):
        asked = operations.AgentCall(
            agent_id="a", backend="one", prompt=("Say PONG.",), timeout_seconds=5, agent_session_id=conversation
        )
        with pytest.raises(errors.StepError) as failed:
            await asking.perform(harness.call(asked))
        codes.append(failed.value.code)

    assert codes[1] == NOT_ALLOWED
    assert codes[0] != NOT_ALLOWED


async def test_a_working_folder_that_was_swapped_is_left(
    project: Path, places: Workspaces, running: supervisor.Supervisor
) -> None:
    """A link that replaces a working folder, or one above it, is not followed."""
    (project / "deep" / "er").mkdir(parents=True)
    operation = operations.Command(argv=("pwd",))
    harness = Harness(working_dir=project / "deep" / "er")
    performer = commands.CommandPerformer(running, places, os.environ)
    first = await performer.perform(harness.call(operation))
    held = places.of(harness.call(operation).run)
    (project / "deep").rename(project / "gone")
    (project / "deep").symlink_to("gone")
    with pytest.raises(errors.StepError) as failed:
        await performer.perform(harness.call(operation))
    with pytest.raises(errors.StepError) as checked:
        held.scan()

    assert first.output["stdout"].strip() == str(project / "deep" / "er")
    assert (failed.value.code, checked.value.code) == (NOT_ALLOWED, "workspace_missing")


@pytest.mark.parametrize("depth", [1, 2])
def test_a_folder_that_is_swapped_while_it_is_opened_is_held(tmp_path: Path, depth: int) -> None:
    """A folder replaced by a link while its path is opened is refused, or the original folder is opened."""
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    (tmp_path / "trap" / "b" / "c").mkdir(parents=True)
    swapped = [tmp_path / "a", inner.parent][depth - 1]

    def swap(at: int, _: int) -> None:
        if at == len(tmp_path.parts) and not swapped.is_symlink():
            swapped.rename(tmp_path / "former")
            swapped.symlink_to(tmp_path / "trap")

    if depth == 1:
        folder = folders.opened(inner, swap)
        assert os.path.samestat(os.fstat(folder), (tmp_path / "former" / "b" / "c").stat())
        os.close(folder)
    else:
        with pytest.raises(NotADirectoryError):
            folders.opened(inner, swap)


async def test_an_agent_is_not_started_in_a_swapped_folder(tmp_path: Path) -> None:
    """An agent's program is not started in a working folder that a link has replaced."""
    (tmp_path / "real").mkdir()
    (tmp_path / "work").symlink_to("real")
    config = BackendConfig(name="one", type="template", command=("env",))
    speaking = backends.Backends({"one": config}, around.surroundings(sessions=MemoryAgentSessions()))
    harness = Harness(working_dir=tmp_path / "work")
    with pytest.raises(processes.NotStarted) as failed:
        await AgentPerformer(speaking, around.conversations()).perform(
            harness.call(operations.AgentCall(agent_id="a", backend="one", prompt=("x",), tools=True))
        )
    await speaking.close()

    assert failed.value.code == "cwd_missing"


def of_run(project: Path, places: Workspaces) -> Workspace:
    """Return the workspace of a run whose own folder is in the project."""
    call = Harness(working_dir=project).call(operations.Check(check="file_exists", subject="x"))
    return places.of(dataclasses.replace(call.run, folder=str(project / ".orchestrate/runs/own")))


def test_a_run_may_use_its_own_artifacts(project: Path, places: Workspaces) -> None:
    """A run reaches only `artifacts/` of its own folder, and no link leads from there to the rest."""
    own = ".orchestrate/runs/own"
    workspace = of_run(project, Workspaces([project], Reserved(folders=(project / ".orchestrate",))))
    workspace.write_text(f"./{own}/artifacts/deep/a.md", "text")
    (project / own / "artifacts" / "up").symlink_to("..")
    (project / own / "artifacts" / ".git").mkdir()

    assert workspace.read_text(f"{own}/artifacts/deep/a.md") == "text"
    assert globs.fitting(workspace.place, f"{own}/artifacts/deep/*.md") == [f"{own}/artifacts/deep/a.md"]
    for path in ("journal.md", "artifacts/up/journal.md", "artifacts/.git/x.md", "../other/x.md", "artifactsx"):
        with pytest.raises(errors.ToolFailed) as failed:
            workspace.write_text(f"{own}/{path}", "x", overwrite=True)
        assert failed.value.code == OUTSIDE
    with pytest.raises(errors.ToolFailed):
        globs.fitting(workspace.place, ".orchestrate/*/own/artifacts/*")
    assert (project / own / "journal.md").read_text() == "secret\n"


def test_a_folder_that_holds_the_data_is_not_moved(project: Path, places: Workspaces) -> None:
    """A folder that contains the data directory is not moved."""
    performer = moves.MoveFilePerformer(places)
    operation = file_operations.MoveFile(source="book", folder="work")
    with pytest.raises(errors.ToolFailed) as failed:
        asyncio.run(performer.perform(Harness(working_dir=project).call(operation)))

    assert failed.value.code == OUTSIDE
    assert (project / "book" / "state" / "journal.md").exists()


async def test_an_output_file_leaves_other_names_of_the_file_alone(
    project: Path, places: Workspaces, running: supervisor.Supervisor
) -> None:
    """An output file replaces a hard link, and the other name of the file keeps its content."""
    journal = project / ".orchestrate/runs/own/journal.md"
    (project / "out.md").hardlink_to(journal)
    operation = operations.Command(argv=("echo", "new"), output_file="out.md")
    result: records.Result = await commands.CommandPerformer(running, places, os.environ).perform(
        Harness(working_dir=project).call(operation)
    )

    assert result.error is None
    assert ((project / "out.md").read_text(), journal.read_text()) == ("new\n", "secret\n")


def test_a_mount_of_the_data_is_the_data(project: Path, places: Workspaces) -> None:
    """The data directory is refused also where it is mounted under another name."""
    (project / "mounted").mkdir()
    mount = ["mount", "--bind", str(project / "book" / "state"), str(project / "mounted")]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("this machine does not let the test mount anything")
    try:
        workspace = places.of(Harness(working_dir=project).call(operations.Check(check="file_exists", subject="x")).run)
        with pytest.raises(errors.ToolFailed) as failed:
            workspace.read_text("mounted/journal.md")
    finally:
        subprocess.run(["umount", str(project / "mounted")], check=True)

    assert failed.value.code == OUTSIDE


@pytest.mark.parametrize("way", [".git", "book/state", "book", "other/.control-room/runs", "absolute"])
def test_no_folder_of_finished_tasks_is_reserved(project: Path, way: str) -> None:
    """`processed_dir` may not be, contain or be inside a reserved folder, because its files are removed."""

    class Named:
        processed_dir, path = way, project / "flow.yaml"

    class Placed:
        workspace, data = project, project / "book" / "state"

    with pytest.raises(errors.RequestInvalid) as failed:
        processed.of(Named, Placed)  # type: ignore[arg-type]

    assert failed.value.code == "processed_dir_refused"
    assert Root.of(project / "work").is_reserved() is False


@pytest.mark.parametrize("looks", [False, True])
def test_a_run_is_parked_only_for_a_folder_that_the_settings_or_the_disk_refuse(tmp_path: Path, looks: bool) -> None:
    """A folder outside the allowed ones parks its run, a missing one only if the disk is checked; a plan's never."""
    (tmp_path / "project").mkdir()
    allowed = Workspaces([tmp_path / "project"])
    start = Harness(working_dir=tmp_path / "project").call(operations.Command(argv=("true",))).run
    faults = {
        place: allowed.fault(dataclasses.replace(start, working_dir=place), looks)
        for place in (str(tmp_path / "project"), str(tmp_path / "other"), str(tmp_path / "project" / "gone"), "plan")
    }

    gone = "workspace_missing" if looks else None
    assert [fault and fault.code for fault in faults.values()] == [None, NOT_ALLOWED, gone, None]
