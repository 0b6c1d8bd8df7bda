"""Moving files: once, durably, never over another file, and completed by the next try after any crash."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.domain import file_operations
from app.tools import moves
from app.tools.moves import MoveFilePerformer
from app.tools.workspace import Workspaces
from tests.architecture import sources
from tests.unit.calls import Harness

WRITES = ("mkdir", "link", "rename", "unlink", "fsync")

KILLED = """
import os, pathlib, signal, sys
from app.tools import moves

def die(*args, **named):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(os, sys.argv[2], die)
moves.carry_out(pathlib.Path(sys.argv[1]), moves.Move.of("inbox/a.task", "done/now"), is_again=False)
"""


class Crash(BaseException):
    """Simulated end of the process."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "inbox").mkdir(parents=True)
    (made / "inbox/a.task").write_text("a")
    return made


async def move(root: Path, source: str = "inbox/a.task", folder: str = "done/now", attempt: int = 1) -> dict[str, Any]:
    """Move a path, and return the output."""
    call = Harness(working_dir=root).call(file_operations.MoveFile(source=source, folder=folder), attempt=attempt)
    told: dict[str, Any] = (await MoveFilePerformer(Workspaces([root])).perform(call)).output
    return told


async def refusal(
    root: Path, source: str = "inbox/a.task", folder: str = "done/now", attempt: int = 1
) -> errors.ToolFailed:
    """Return the failure of a move."""
    with pytest.raises(errors.ToolFailed) as failed:
        await move(root, source, folder, attempt)
    return failed.value


def content(root: Path) -> dict[str, str]:
    """Return the text of every file."""
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


def paths(root: Path) -> list[Path]:
    """Return all paths below a folder."""
    return sorted(root.rglob("*"))


class TestMoves:
    """Successful and refused moves."""

    async def test_a_file_gets_a_new_place(self, root: Path) -> None:
        """A move creates the folders, keeps the same file and returns both paths."""
        inode = (root / "inbox/a.task").stat().st_ino
        told = await move(root, "./inbox//a.task", "done/now/")

        assert told == {"from": "inbox/a.task", "to": "done/now/a.task"}
        assert content(root) == {"done/now/a.task": "a"}
        assert (root / "done/now/a.task").stat().st_ino == inode

    async def test_a_folder_goes_with_all_that_it_holds(self, root: Path) -> None:
        """A folder is moved with its content, also to the root of the workspace."""
        (root / "inbox/box/deep").mkdir(parents=True)
        (root / "inbox/box/deep/x").write_text("x")
        told = await move(root, "inbox/box", ".")

        assert told == {"from": "inbox/box", "to": "box"}
        assert content(root) == {"box/deep/x": "x", "inbox/a.task": "a"}

    async def test_a_link_is_moved_as_it_is(self, root: Path) -> None:
        """A link is moved as a link and its target stays; folders on the way may be links inside the workspace."""
        (root / "inbox/link").symlink_to(root / "inbox/a.task")
        (root / "way").symlink_to("inbox")
        await move(root, "way/link", "done")

        assert (root / "done/link").is_symlink()
        assert content(root) == {"done/link": "a", "inbox/a.task": "a"}

    async def test_a_named_pipe_is_moved_without_blocking(self, root: Path) -> None:
        """A named pipe is moved without blocking."""
        os.mkfifo(root / "inbox/pipe")
        await move(root, "inbox/pipe", "done")

        assert (root / "done/pipe").is_fifo()

    @pytest.mark.parametrize("attempt", [1, 2])
    @pytest.mark.parametrize("taken", ["file", "folder", "full folder", "link", "broken link", "hard link of another"])
    @pytest.mark.parametrize("moved", ["a.task", "box"])
    async def test_no_existing_path_is_overwritten(self, root: Path, attempt: int, taken: str, moved: str) -> None:
        """A file, folder or link at the new place is never overwritten, and the moved file stays, also at a retry."""
        (root / "inbox/box").mkdir()
        (root / "inbox/box/x").write_text("x")
        (root / "done").mkdir()
        (root / "done/other").write_text("other")
        place = root / "done" / moved
        makers: dict[str, Callable[[], Any]] = {
            "file": lambda: place.write_text("other"),
            "folder": place.mkdir,
            "full folder": lambda: (place / "y").mkdir(parents=True),
            "link": lambda: place.symlink_to("other"),
            "broken link": lambda: place.symlink_to("nowhere"),
            "hard link of another": lambda: place.hardlink_to(root / "done/other"),
        }
        makers[taken]()
        before = paths(root), content(root)
        failure = await refusal(root, f"inbox/{moved}", "done", attempt=attempt)

        assert (failure.code, failure.detail["path"]) == ("file_exists", f"done/{moved}")
        assert (paths(root), content(root)) == before

    @pytest.mark.parametrize("attempt", [1, 2])
    @pytest.mark.parametrize("folder", ["inbox", "way"])
    async def test_a_file_that_is_there_already_is_not_lost(self, root: Path, folder: str, attempt: int) -> None:
        """A file whose new place is its old one, perhaps by another path, fails the move and is not removed."""
        (root / "way").symlink_to("inbox")

        assert (await refusal(root, "inbox/a.task", folder, attempt=attempt)).code == "file_exists"
        assert content(root)["inbox/a.task"] == "a"

    async def test_a_folder_does_not_go_into_itself(self, root: Path) -> None:
        """A move of a folder into itself is refused, and all files remain."""
        failure = await refusal(root, "inbox", "inbox/done")

        assert (failure.code, failure.detail["errno"]) == ("write_failed", "EINVAL")
        assert content(root) == {"inbox/a.task": "a"}

    @pytest.mark.parametrize("attempt", [1, 2])
    @pytest.mark.parametrize(
        ("source", "folder", "code"),
        [
            ("inbox/none", "done", "file_not_found"),
            ("none/a", "done", "file_not_found"),
            ("inbox/a.task/x", "done", "file_not_found"),
            ("inbox/broken", "done", "file_not_found"),
            (".", "done", "not_a_file"),
            ("../inbox/a.task", "done", "path_outside_workspace"),
            ("inbox/a.task", "../done", "path_outside_workspace"),
            ("inbox/a.task", "/tmp", "path_outside_workspace"),
            ("inbox/a.task", "out", "path_outside_workspace"),
            ("inbox/a.task", "out/new", "path_outside_workspace"),
            ("inbox/a.task", ".git/hooks", "path_outside_workspace"),
            ("inbox/leads-out", "done", "path_outside_workspace"),
            ("out/hosts", "done", "path_outside_workspace"),
            (".git/config", "done", "path_outside_workspace"),
        ],
    )
    async def test_an_immovable_path_is_not_moved(
        self, root: Path, source: str, folder: str, code: str, attempt: int
    ) -> None:
        """A path that cannot be moved fails with the code of its reason, and no folder is created."""
        (root / "out").symlink_to("/etc")
        (root / "inbox/leads-out").symlink_to("/etc/hosts")
        (root / "inbox/broken").symlink_to("nowhere")
        before = paths(root)

        assert (await refusal(root, source, folder, attempt=attempt)).code == code
        assert paths(root) == before


class TestCrashes:
    """States after a crash, and how the next try completes them."""

    @pytest.mark.parametrize("call", ["link", "unlink"])
    def test_a_kill_between_the_names(self, root: Path, call: str) -> None:
        """A move killed before it removed the old name leaves both; the next try removes the old one."""
        script = [sys.executable, "-c", KILLED, str(root), call]
        killed = subprocess.run(script, cwd=sources.ROOT, check=False)
        left = content(root)
        moves.carry_out(root, moves.Move.of("inbox/a.task", "done/now"), is_again=True)

        assert killed.returncode == -signal.SIGKILL
        assert left == {"inbox/a.task": "a"} | ({"done/now/a.task": "a"} if call == "unlink" else {})
        assert content(root) == {"done/now/a.task": "a"}

    @pytest.mark.parametrize("source", ["inbox/a.task", "inbox/box", "inbox/link"])
    @pytest.mark.parametrize("after", [False, True])
    def test_a_crash_at_any_write(self, root: Path, source: str, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """After a crash at any change or sync, the file still exists and the next try completes the move."""
        reached, crashed = 0, True
        while crashed:
            reached += 1
            self._lay_out(root)
            move = moves.Move.of(source, f"done/{reached}")
            crashed = self._crash(root, move, reached, after, monkeypatch)

            assert os.path.lexists(root / move.source) or os.path.lexists(root / move.target)

            moves.carry_out(root, move, is_again=True)

            assert not os.path.lexists(root / move.source)
            assert os.path.lexists(root / move.target)
        assert reached > 5

    async def test_a_hard_link_of_another_program_is_refused(self, root: Path) -> None:
        """A first try refuses a hard link to the same file at the new place, because another program made it."""
        (root / "done").mkdir()
        (root / "done/a.task").hardlink_to(root / "inbox/a.task")

        assert (await refusal(root, "inbox/a.task", "done")).code == "file_exists"
        assert set(content(root)) == {"done/a.task", "inbox/a.task"}

    async def test_a_later_try_makes_the_names_durable(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The try that finds the move done syncs the folders, because the first may have died before it did."""
        await move(root)
        synced = self._noted(monkeypatch, "fsync", lambda file: os.readlink(f"/proc/self/fd/{file}"))
        await move(root, attempt=2)

        folders = [root / "done/now", root / "done", root, root / "inbox", root]
        assert synced == [str(folder.resolve()) for folder in folders]

    async def test_the_new_name_lasts_before_the_old_one_goes(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The new name is synced before the old one is removed, so that a power cut leaves at least one."""
        story: list[str] = []
        for call in WRITES:
            self._noted(monkeypatch, call, lambda *_, call=call: story.append(call))
        await move(root, folder=".")

        assert story == ["link", "fsync", "unlink", "fsync", "fsync"]

    @staticmethod
    def _lay_out(root: Path) -> None:
        (root / "inbox/box").mkdir(exist_ok=True)
        (root / "inbox/box/x").write_text("x")
        (root / "inbox/a.task").write_text("a")
        if not os.path.lexists(root / "inbox/link"):
            (root / "inbox/link").symlink_to(root / "inbox/a.task")

    @staticmethod
    def _crash(root: Path, move: moves.Move, nth: int, after: bool, monkeypatch: pytest.MonkeyPatch) -> bool:
        passed = 0

        def crashing(call: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*given: Any, **named: Any) -> Any:
                nonlocal passed
                passed += 1
                if passed == nth and not after:
                    raise Crash
                result = call(*given, **named)
                if passed == nth and after:
                    raise Crash
                return result

            return counted

        with monkeypatch.context() as patched:
            for call in WRITES:
                patched.setattr(os, call, crashing(getattr(os, call)))
            try:
                moves.carry_out(root, move, is_again=False)
            except Crash:
                return True
        return False

    @staticmethod
    def _noted(monkeypatch: pytest.MonkeyPatch, call: str, note: Callable[..., Any]) -> list[Any]:
        noted: list[Any] = []
        really = getattr(os, call)

        def noting(*given: Any, **named: Any) -> Any:
            noted.append(note(*given))
            return really(*given, **named)

        monkeypatch.setattr(os, call, noting)
        return noted


class TestOthers:
    """Other programs that move files at the same time."""

    async def test_only_one_of_two_moves_succeeds(self, root: Path) -> None:
        """Of two runs that move a file to different folders, one succeeds and the other gets `file_not_found`."""
        for number in range(30):
            (root / f"inbox/{number}").write_text("x")
            outcomes = await asyncio.gather(
                *(move(root, f"inbox/{number}", folder) for folder in ("left", "right")), return_exceptions=True
            )
            lost = [outcome for outcome in outcomes if isinstance(outcome, errors.ToolFailed)]

            assert [failure.code for failure in lost] == ["file_not_found"]
            assert (root / f"left/{number}").exists() is not (root / f"right/{number}").exists()

    async def test_a_file_that_others_take_is_theirs(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file that another program moves away during the move does not remain in two places."""
        link = os.link

        def interfering(*given: Any, **named: Any) -> None:
            link(*given, **named)
            (root / "inbox/a.task").rename(root / "theirs")

        monkeypatch.setattr(os, "link", interfering)

        assert (await refusal(root)).code == "file_not_found"
        assert content(root) == {"theirs": "a"}

    async def test_a_last_name_is_never_removed(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """If another program deletes the old name during the move, the file is at its new place."""
        link = os.link

        def interfering(*given: Any, **named: Any) -> None:
            link(*given, **named)
            (root / "inbox/a.task").unlink()

        monkeypatch.setattr(os, "link", interfering)
        await move(root)

        assert content(root) == {"done/now/a.task": "a"}

    @pytest.mark.parametrize("taken", [False, True])
    async def test_a_file_system_without_hard_links(
        self, root: Path, taken: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On a file system without hard links, the file is renamed if its new name is free."""

        def refusing(*_: Any, **__: Any) -> None:
            raise OSError(errno.EOPNOTSUPP, "no links")

        monkeypatch.setattr(os, "link", refusing)
        if taken:
            (root / "done/now").mkdir(parents=True)
            (root / "done/now/a.task").write_text("other")

            assert (await refusal(root)).code == "file_exists"
            assert content(root) == {"done/now/a.task": "other", "inbox/a.task": "a"}
        else:
            await move(root)

            assert content(root) == {"done/now/a.task": "a"}

    async def test_a_name_that_cannot_be_removed(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """If the old name cannot be removed, the file stays there and the new name is removed."""
        unlink = os.unlink
        calls = []

        def refusing(name: str, *, dir_fd: int) -> None:
            calls.append(name)
            if len(calls) == 1:
                raise PermissionError(errno.EACCES, "not yours")
            unlink(name, dir_fd=dir_fd)

        monkeypatch.setattr(os, "unlink", refusing)

        assert (await refusal(root)).code == "write_failed"
        assert content(root) == {"inbox/a.task": "a"}

    async def test_a_move_that_has_begun_is_finished_before_a_cancellation(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A cancelled step ends only after a move that has begun is complete."""
        begun, go = threading.Event(), threading.Event()
        carry_out = moves.carry_out

        def held(*given: Any, **named: Any) -> None:
            begun.set()
            go.wait(30)
            carry_out(*given, **named)

        monkeypatch.setattr(moves, "carry_out", held)
        asked = asyncio.ensure_future(move(root))
        await asyncio.to_thread(begun.wait, 30)
        asked.cancel()
        await asyncio.wait([asked], timeout=0.05)
        early = asked.done()
        go.set()
        await asyncio.wait([asked], timeout=60)

        assert not early
        assert asked.cancelled()
        assert content(root) == {"done/now/a.task": "a"}

    async def test_no_descriptor_stays_open(self, root: Path) -> None:
        """No descriptor stays open after a move or a failed move."""
        before = len(os.listdir("/proc/self/fd"))
        await move(root)
        await move(root, attempt=2)
        await refusal(root)

        assert len(os.listdir("/proc/self/fd")) == before
