"""Globs below a workspace: which paths fit, in which order, and that they never leave the workspace."""

from __future__ import annotations

import errno
import fnmatch
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.domain import file_operations
from app.tools import confinement, globs, name_patterns
from app.tools.file_performers import FindFilesPerformer
from app.tools.workspace import Workspaces
from tests.unit.calls import Harness

NAMES = st.text("ab.-]é", min_size=1, max_size=8)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def plant(root: Path, *paths: str) -> None:
    """Create files, and folders where a path ends with a slash."""
    for path in paths:
        place = root / path
        (place if path.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            place.touch()


def refusal(root: Path, pattern: str) -> errors.ToolFailed:
    """Return the failure of a pattern."""
    with pytest.raises(errors.ToolFailed) as failed:
        globs.fitting(root, pattern)
    return failed.value


class TestNames:
    """Patterns of one name."""

    @pytest.mark.parametrize(
        ("pattern", "fit", "unfit"),
        [
            ("a.md", ["a.md"], ["aXmd", "a.md "]),
            ("*", ["a", "a b", "é\n"], [".a", "."]),
            (".*", [".a", ".a.md"], ["a", "a.b"]),
            ("?", ["a", "é"], ["", "ab", "."]),
            ("?a", ["aa"], [".a"]),
            (".?", [".a"], [".", "aa"]),
            ("a*b*c", ["abc", "aXbYc", "abcbc"], ["abcX", "Xabc", "acb"]),
            ("a**c", ["ac", "abc"], ["a"]),
            ("a?c*", ["abc", "abcd"], ["ac"]),
            ("*.task", ["1.task", "a.b.task"], [".task", "1.task.tmp"]),
            ("[ab]", ["a", "b"], ["c", "ab", "[ab]"]),
            ("[!ab]", ["c", "!"], ["a", "."]),
            ("[^ab]", ["c"], ["a", "^a"]),
            ("[a-c]1", ["a1", "b1"], ["d1", "-1"]),
            ("[a-]", ["a", "-"], ["b"]),
            ("[]a]", ["]", "a"], ["[]a]"]),
            ("[!]a]", ["b"], ["]", "a"]),
            ("[c-a]", [], ["a", "b", "c", ""]),
            ("[!c-a]", ["b"], ["", "bb"]),
            ("[.]a", [], [".a"]),
            ("[[:digit:]_]*", ["1a", "_"], ["a", "[", ":"]),
            ("[![:space:]]", ["a"], [" ", "\t"]),
            ("[ab", ["[ab"], ["a"]),
            ("\\*", ["*"], ["a", "\\*"]),
            ("\\[a\\]", ["[a]"], ["a"]),
            ("[a\\]b]", ["a", "]", "b"], ["\\"]),
            ("a\\", ["a\\"], ["a"]),
            ("(a|b)+$", ["(a|b)+$"], ["a", "ab"]),
            ("A*", ["Ab"], ["ab"]),
        ],
    )
    def test_patterns_follow_posix(self, pattern: str, fit: list[str], unfit: list[str]) -> None:
        """Wildcards, sets, classes and backslashes follow POSIX; a leading dot must be matched explicitly."""
        read = name_patterns.parse(pattern)

        def fits(name: str) -> bool:
            return read == name if isinstance(read, str) else read.fits(name)

        assert [name for name in fit if not fits(name)] == []
        assert [name for name in unfit if fits(name)] == []

    @given(pattern=st.text("ab*?é.", min_size=1, max_size=12), name=NAMES)
    def test_patterns_agree_with_fnmatch(self, pattern: str, name: str) -> None:
        """Without sets and hidden names, a pattern fits the same names as `fnmatch`."""
        read = name_patterns.parse(pattern)
        hidden = name.startswith(".") and not pattern.startswith(".")
        fits = read == name if isinstance(read, str) else read.fits(name)

        assert fits == (fnmatch.fnmatchcase(name, pattern) and not hidden)

    def test_no_pattern_takes_long(self) -> None:
        """A pattern of a hundred stars that almost fits fails without endless backtracking."""
        read = name_patterns.parse("*a" * 120 + "b")

        assert isinstance(read, name_patterns.Wildcard)
        assert not read.fits("a" * 255)

    def test_an_unknown_character_class_is_refused(self, root: Path) -> None:
        """An unknown character class is refused as `invalid_pattern`."""
        assert refusal(root, "a/[[:digits:]]").code == "invalid_pattern"


class TestPaths:
    """Patterns of paths."""

    @pytest.mark.parametrize(
        ("pattern", "found"),
        [
            ("data/*.csv", ["data/a.csv", "data/b.csv"]),
            ("./data//*.csv", ["data/a.csv", "data/b.csv"]),
            ("data/a.csv", ["data/a.csv"]),
            ("data/none.csv", []),
            ("none/*.csv", []),
            ("data/a.csv/*", []),
            ("data/a.csv/x", []),
            ("*", ["data", "inbox", "top.md"]),
            ("*/", ["data", "inbox"]),
            ("top.md/", []),
            ("data/", ["data"]),
            (".*", [".hidden"]),
            ("*/*", ["data/a.csv", "data/b.csv", "data/sub", "inbox/qa"]),
            ("*/*/*.task", ["inbox/qa/1.task", "inbox/qa/2.task"]),
            ("inbox/*/1.task", ["inbox/qa/1.task"]),
            ("inbox/*/none/../x", None),
            ("data/.c*", ["data/.c.csv"]),
            (".", ["."]),
        ],
    )
    def test_a_glob_finds_files_and_folders_below_the_workspace(
        self, root: Path, pattern: str, found: list[str] | None
    ) -> None:
        """A glob finds files and folders as paths below the workspace, with any slashes and dots in the pattern."""
        plant(root, "data/b.csv", "data/a.csv", "data/.c.csv", "data/sub/x.csv", "top.md", ".hidden")
        plant(root, "inbox/qa/2.task", "inbox/qa/1.task", ".control-room/runs/x", ".git/config")
        if found is None:
            assert refusal(root, pattern).code == "path_outside_workspace"
        else:
            assert globs.fitting(root, pattern) == found

    def test_the_order_is_that_of_bytes(self, root: Path) -> None:
        """Paths are sorted by their bytes, without regard to language or folders."""
        names = ["a", "B", "é", "a-b", "a.b", "z", "10", "9", "\U0001f600", "ﬀ"]
        plant(root, *names, "d/x", "d.x")

        assert globs.fitting(root, "*") == sorted([*names, "d", "d.x"], key=os.fsencode)

    def test_a_thousand_files(self, root: Path) -> None:
        """A glob finds a thousand files, in order."""
        names = [f"{number:04}.task" for number in range(1000)]
        plant(root, *(f"inbox/{name}" for name in reversed(names)))

        assert globs.fitting(root, "inbox/*.task") == [f"inbox/{name}" for name in names]

    def test_names_that_are_not_utf8_are_left_out(self, root: Path) -> None:
        """Names that are not UTF-8 are left out, because a record cannot contain them; other names are found."""
        plant(root, "a.task")
        (Path(os.fsdecode(os.fsencode(root) + b"/\xff.task"))).touch()
        (Path(os.fsdecode(os.fsencode(root) + b"/\xfe"))).mkdir()

        assert globs.fitting(root, "*") == ["a.task"]
        assert globs.fitting(root, "*/*") == []

    def test_a_named_pipe_fits_a_pattern(self, root: Path) -> None:
        """A named pipe fits a pattern, and the glob does not block on it."""
        os.mkfifo(root / "pipe")
        (root / "link").symlink_to("pipe")

        assert globs.fitting(root, "*") == ["link", "pipe"]
        assert globs.fitting(root, "pipe") == ["pipe"]
        assert globs.fitting(root, "pipe/*") == []


class TestLinks:
    """Links and their targets."""

    def test_links_inside_are_followed(self, root: Path) -> None:
        """Links inside the workspace are followed to files and folders, relative and absolute, anywhere in a path."""
        plant(root, "data/a.csv")
        (root / "near").symlink_to("data")
        (root / "far").symlink_to(root / "data")
        (root / "data/b.csv").symlink_to("../data/a.csv")

        assert globs.fitting(root, "*/*.csv") == [
            f"{name}/{file}.csv" for name in ("data", "far", "near") for file in "ab"
        ]
        assert globs.fitting(root, "near/a.csv") == ["near/a.csv"]
        assert globs.fitting(root, "near/") == ["near"]

    def test_a_broken_link_is_not_a_match(self, root: Path) -> None:
        """A broken link is not a match, whether the pattern lists or names it, and other paths are found."""
        plant(root, "a")
        (root / "broken").symlink_to("nowhere")
        (root / "below").symlink_to("a/b")

        assert globs.fitting(root, "*") == ["a"]
        assert globs.fitting(root, "broken") == globs.fitting(root, "b*/*") == []

    @pytest.mark.parametrize("target", ["..", "/etc", "../outside", "/etc/passwd", ".git", "loop", "data/../.."])
    @pytest.mark.parametrize("pattern", ["*", "loop", "*/*", "loop/*", "loop/x"])
    def test_a_link_that_leads_out_is_refused(self, root: Path, pattern: str, target: str) -> None:
        """A link that leads out of the workspace is refused at any part of the path, and the failure names it."""
        plant(root, "data/a", "../outside/x", ".git/x")
        (root / "loop").symlink_to(target)
        failure = refusal(root, pattern)

        assert failure.code == "path_outside_workspace"
        assert failure.detail["path"].startswith("loop")

    def test_a_link_that_is_not_asked_for_does_no_harm(self, root: Path) -> None:
        """A link that leads out does not disturb a pattern that does not fit it."""
        plant(root, "a.md")
        (root / "out").symlink_to("/etc")

        assert globs.fitting(root, "*.md") == ["a.md"]


class TestRefusals:
    """Refused patterns and folders."""

    @pytest.mark.parametrize(
        "pattern",
        ["/etc/*", "../*", "a/../b", "~/*", "a\0", ".git/*", ".Control-Room/*", "\\.\\./x", "\\.git/*", "a/" * 65],
    )
    def test_a_pattern_that_leads_out(self, root: Path, pattern: str) -> None:
        """A pattern that leads out of the workspace is refused, also behind a backslash."""
        assert refusal(root, pattern).code == "path_outside_workspace"

    @pytest.mark.parametrize("pattern", ["", " ", "**", "src/**/*.py", "*\udcff"])
    def test_a_pattern_that_is_none(self, root: Path, pattern: str) -> None:
        """`**`, an empty pattern and half a surrogate pair are refused as `invalid_pattern`."""
        assert refusal(root, pattern).code == "invalid_pattern"

    def test_our_own_folders_fit_no_wildcard(self, root: Path) -> None:
        """Wildcards do not fit the reserved folders of runs and repositories."""
        plant(root, ".control-room/runs/x", ".git/config", "sub/.git/config", "sub/.x/config")

        assert globs.fitting(root, ".*") == []
        assert globs.fitting(root, "*/.*/config") == ["sub/.x/config"]

    @pytest.mark.parametrize("pattern", ["*", "*/*"])
    def test_there_is_an_end(self, root: Path, pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A pattern that reaches more paths than the limit fails, on the way or at its end."""
        monkeypatch.setattr(globs, "MOST_PATHS", 3)
        plant(root, "a/x", "b/x", "c/x")
        before = globs.fitting(root, pattern)
        plant(root, "d/x")

        assert len(before) == 3
        assert refusal(root, pattern).code == "too_many_files"

    def test_a_workspace_that_is_gone(self, tmp_path: Path) -> None:
        """A missing workspace fails with `workspace_missing` and not with an empty list."""
        assert refusal(tmp_path / "none", "*").code == "workspace_missing"

    def test_a_folder_that_cannot_be_read(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An unreadable folder fails a pattern that names it, and is skipped where a wildcard reaches it."""
        plant(root, "closed/a", "open/a")
        really_open = os.open

        def closed_to_us(path: Any, *given: Any, **named: Any) -> int:
            if path == "closed":
                raise PermissionError(errno.EACCES, "closed")
            return really_open(path, *given, **named)

        monkeypatch.setattr(os, "open", closed_to_us)

        assert globs.fitting(root, "*/a") == ["open/a"]
        assert refusal(root, "closed/*").code == refusal(root, "closed/a").code == "file_unreadable"


class TestRaces:
    """Files that appear and vanish during a glob."""

    @pytest.mark.parametrize("becomes", ["nothing", "file", "link"])
    def test_a_folder_that_changes_between_list_and_look(
        self, root: Path, becomes: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A folder that vanishes after it was listed is not a match; one replaced by a link out is refused."""
        plant(root, "a/x", "b/x")
        enter = confinement.Descent.enter

        def changing(descent: confinement.Descent, parts: tuple[str, ...], *, create: bool = False) -> None:
            if parts == ("b",):
                (root / "b").rename(root.parent / "elsewhere")
                if becomes == "file":
                    plant(root, "b")
                if becomes == "link":
                    (root / "b").symlink_to("../elsewhere")
            enter(descent, parts, create=create)

        monkeypatch.setattr(confinement.Descent, "enter", changing)
        if becomes == "link":
            assert refusal(root, "*/*").code == "path_outside_workspace"
        else:
            assert globs.fitting(root, "*/*") == ["a/x"]

    def test_names_come_and_go_while_it_looks(self, root: Path) -> None:
        """A file that stays is always found while others come and go, and no descriptor stays open."""
        plant(root, "box/fixed.task")
        over = threading.Event()

        def stir() -> None:
            while not over.is_set():
                for number in range(20):
                    plant(root, f"box/{number}.task", f"box/{number}/x.task")
                for number in range(20):
                    (root / f"box/{number}.task").unlink()
                    (root / f"box/{number}/x.task").unlink()
                    (root / f"box/{number}").rmdir()

        before = len(os.listdir("/proc/self/fd"))
        stirring = threading.Thread(target=stir)
        stirring.start()
        try:
            for _ in range(50):
                assert "box/fixed.task" in globs.fitting(root, "*/*.task")
                globs.fitting(root, "box/*/*.task")
        finally:
            over.set()
            stirring.join()

        assert len(os.listdir("/proc/self/fd")) == before


class TestPerformer:
    """FindFilesPerformer."""

    async def test_every_pattern_has_its_paths(self, root: Path) -> None:
        """Each pattern has its own list of paths, and a pattern without a match has an empty list."""
        plant(root, "a.md", "b.md")
        call = Harness(working_dir=root).call(file_operations.FindFiles(patterns=("*.md", "a.*", "*.txt", "*.md")))
        result = await FindFilesPerformer(Workspaces([root])).perform(call)

        assert result.output == {"found": {"*.md": ["a.md", "b.md"], "a.*": ["a.md"], "*.txt": []}}
        assert result.summary == "3 paths"

    async def test_a_failing_pattern_fails_the_step(self, root: Path) -> None:
        """One failing pattern fails the step, and the failure names the path."""
        plant(root, "a.md")
        (root / "out.md").symlink_to("/etc/passwd")
        call = Harness(working_dir=root).call(file_operations.FindFiles(patterns=("a.md", "*.md")))
        with pytest.raises(errors.ToolFailed) as failed:
            await FindFilesPerformer(Workspaces([root])).perform(call)

        assert (failed.value.code, failed.value.detail["path"]) == ("path_outside_workspace", "out.md")

    async def test_a_workspace_elsewhere_is_refused(self, root: Path) -> None:
        """A run whose working folder is outside the allowed workspaces finds no files."""
        call = Harness(working_dir=root.parent).call(file_operations.FindFiles(patterns=("*",)))
        with pytest.raises(errors.ToolFailed) as failed:
            await FindFilesPerformer(Workspaces([root])).perform(call)

        assert failed.value.code == "workspace_not_allowed"

    async def test_a_look_that_takes_too_long_is_over(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file system that does not answer fails the step at its time-out."""
        go = threading.Event()
        monkeypatch.setattr(globs, "fitting", lambda *_: go.wait(30))
        call = Harness(working_dir=root).call(file_operations.FindFiles(patterns=("*",), timeout_seconds=0.05))
        with pytest.raises(errors.ToolFailed) as failed:
            await FindFilesPerformer(Workspaces([root])).perform(call)
        go.set()

        assert (failed.value.code, failed.value.detail) == ("timeout", {"timeout_seconds": 0.05})
