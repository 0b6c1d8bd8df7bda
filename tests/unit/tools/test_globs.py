"""Globs below a workspace: what fits, in which order, and that nothing outside is looked at."""

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
    """Make files, and folders where a path ends with a slash."""
    for path in paths:
        place = root / path
        (place if path.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            place.touch()


def refusal(root: Path, pattern: str) -> errors.ToolFailed:
    """Return why a pattern fails."""
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
    def test_what_fits(self, pattern: str, fit: list[str], unfit: list[str]) -> None:
        """Wildcards, sets, classes and backslashes mean what POSIX says; a dot in front must be said."""
        read = name_patterns.parse(pattern)

        def fits(name: str) -> bool:
            return read == name if isinstance(read, str) else read.fits(name)

        assert [name for name in fit if not fits(name)] == []
        assert [name for name in unfit if fits(name)] == []

    @given(pattern=st.text("ab*?é.", min_size=1, max_size=12), name=NAMES)
    def test_it_agrees_with_the_standard_library(self, pattern: str, name: str) -> None:
        """Without sets and hidden names it is what `fnmatch` does."""
        read = name_patterns.parse(pattern)
        hidden = name.startswith(".") and not pattern.startswith(".")
        fits = read == name if isinstance(read, str) else read.fits(name)

        assert fits == (fnmatch.fnmatchcase(name, pattern) and not hidden)

    def test_no_pattern_takes_long(self) -> None:
        """A hundred stars that all but fit are tried once."""
        read = name_patterns.parse("*a" * 120 + "b")

        assert isinstance(read, name_patterns.Wildcard)
        assert not read.fits("a" * 255)

    def test_a_class_that_there_is_not(self, root: Path) -> None:
        """It is told, not taken for something else."""
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
    def test_what_is_found(self, root: Path, pattern: str, found: list[str] | None) -> None:
        """Files and folders alike, as paths from the workspace, whatever slashes and dots the pattern has."""
        plant(root, "data/b.csv", "data/a.csv", "data/.c.csv", "data/sub/x.csv", "top.md", ".hidden")
        plant(root, "inbox/qa/2.task", "inbox/qa/1.task", ".control-room/runs/x", ".git/config")
        if found is None:
            assert refusal(root, pattern).code == "path_outside_workspace"
        else:
            assert globs.fitting(root, pattern) == found

    def test_the_order_is_that_of_bytes(self, root: Path) -> None:
        """No language has a say in it, and folders do not come before files."""
        names = ["a", "B", "é", "a-b", "a.b", "z", "10", "9", "\U0001f600", "ﬀ"]
        plant(root, *names, "d/x", "d.x")

        assert globs.fitting(root, "*") == sorted([*names, "d", "d.x"], key=os.fsencode)

    def test_a_thousand_files(self, root: Path) -> None:
        """All of them are found, in order."""
        names = [f"{number:04}.task" for number in range(1000)]
        plant(root, *(f"inbox/{name}" for name in reversed(names)))

        assert globs.fitting(root, "inbox/*.task") == [f"inbox/{name}" for name in names]

    def test_names_that_are_no_text_are_left_out(self, root: Path) -> None:
        """A record could not hold them so that they lead to the file; their neighbours are found."""
        plant(root, "a.task")
        (Path(os.fsdecode(os.fsencode(root) + b"/\xff.task"))).touch()
        (Path(os.fsdecode(os.fsencode(root) + b"/\xfe"))).mkdir()

        assert globs.fitting(root, "*") == ["a.task"]
        assert globs.fitting(root, "*/*") == []

    def test_what_is_no_file_fits_too(self, root: Path) -> None:
        """A named pipe is something that is there; looking at it waits for nobody."""
        os.mkfifo(root / "pipe")
        (root / "link").symlink_to("pipe")

        assert globs.fitting(root, "*") == ["link", "pipe"]
        assert globs.fitting(root, "pipe") == ["pipe"]
        assert globs.fitting(root, "pipe/*") == []


class TestLinks:
    """Links, and what lies behind them."""

    def test_links_inside_are_followed(self, root: Path) -> None:
        """To files, to folders, on the way and at the end, relative and absolute."""
        plant(root, "data/a.csv")
        (root / "near").symlink_to("data")
        (root / "far").symlink_to(root / "data")
        (root / "data/b.csv").symlink_to("../data/a.csv")

        assert globs.fitting(root, "*/*.csv") == [
            f"{name}/{file}.csv" for name in ("data", "far", "near") for file in "ab"
        ]
        assert globs.fitting(root, "near/a.csv") == ["near/a.csv"]
        assert globs.fitting(root, "near/") == ["near"]

    def test_broken_links_are_no_match(self, root: Path) -> None:
        """Nothing is there, whether the pattern lists or names it, and the rest is found."""
        plant(root, "a")
        (root / "broken").symlink_to("nowhere")
        (root / "below").symlink_to("a/b")

        assert globs.fitting(root, "*") == ["a"]
        assert globs.fitting(root, "broken") == globs.fitting(root, "b*/*") == []

    @pytest.mark.parametrize("target", ["..", "/etc", "../outside", "/etc/passwd", ".git", "loop", "data/../.."])
    @pytest.mark.parametrize("pattern", ["*", "loop", "*/*", "loop/*", "loop/x"])
    def test_a_link_that_leads_out_is_refused(self, root: Path, pattern: str, target: str) -> None:
        """Listed or named, at the end or on the way; the failure names it."""
        plant(root, "data/a", "../outside/x", ".git/x")
        (root / "loop").symlink_to(target)
        failure = refusal(root, pattern)

        assert failure.code == "path_outside_workspace"
        assert failure.detail["path"].startswith("loop")

    def test_a_link_that_is_not_asked_for_does_no_harm(self, root: Path) -> None:
        """Only what the pattern fits is looked at."""
        plant(root, "a.md")
        (root / "out").symlink_to("/etc")

        assert globs.fitting(root, "*.md") == ["a.md"]


class TestRefusals:
    """What is not looked at."""

    @pytest.mark.parametrize(
        "pattern",
        ["/etc/*", "../*", "a/../b", "~/*", "a\0", ".git/*", ".Control-Room/*", "\\.\\./x", "\\.git/*", "a/" * 65],
    )
    def test_a_pattern_that_leads_out(self, root: Path, pattern: str) -> None:
        """It is refused as every path is, hidden behind a backslash or not."""
        assert refusal(root, pattern).code == "path_outside_workspace"

    @pytest.mark.parametrize("pattern", ["", " ", "**", "src/**/*.py", "*\udcff"])
    def test_a_pattern_that_is_none(self, root: Path, pattern: str) -> None:
        """`**` looks like something that it is not, and half a character is no text."""
        assert refusal(root, pattern).code == "invalid_pattern"

    def test_our_own_folders_fit_no_wildcard(self, root: Path) -> None:
        """Runs and repositories do not belong to the workspace."""
        plant(root, ".control-room/runs/x", ".git/config", "sub/.git/config", "sub/.x/config")

        assert globs.fitting(root, ".*") == []
        assert globs.fitting(root, "*/.*/config") == ["sub/.x/config"]

    @pytest.mark.parametrize("pattern", ["*", "*/*"])
    def test_there_is_an_end(self, root: Path, pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """More paths than the limit fail the pattern, on the way or at its end."""
        monkeypatch.setattr(globs, "MOST_PATHS", 3)
        plant(root, "a/x", "b/x", "c/x")
        before = globs.fitting(root, pattern)
        plant(root, "d/x")

        assert len(before) == 3
        assert refusal(root, pattern).code == "too_many_files"

    def test_a_workspace_that_is_gone(self, tmp_path: Path) -> None:
        """It is told; otherwise every file would seem to be missing."""
        assert refusal(tmp_path / "none", "*").code == "workspace_missing"

    def test_a_folder_that_cannot_be_read(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Named, it fails; where a wildcard has led to it, others go on."""
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
    """Files that come and go meanwhile."""

    @pytest.mark.parametrize("becomes", ["nothing", "file", "link"])
    def test_a_folder_that_changes_between_list_and_look(
        self, root: Path, becomes: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is gone is no match; what has become a link out is refused, never followed."""
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
        """What stands is always found, whatever happens around it, and no descriptor stays open."""
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
        """A path that two patterns fit stands under both; a pattern that nothing fits has none."""
        plant(root, "a.md", "b.md")
        call = Harness(working_dir=root).call(file_operations.FindFiles(patterns=("*.md", "a.*", "*.txt", "*.md")))
        result = await FindFilesPerformer(Workspaces([root])).perform(call)

        assert result.output == {"found": {"*.md": ["a.md", "b.md"], "a.*": ["a.md"], "*.txt": []}}
        assert result.summary == "3 paths"

    async def test_one_pattern_that_fails_fails_the_step(self, root: Path) -> None:
        """The failure names the path."""
        plant(root, "a.md")
        (root / "out.md").symlink_to("/etc/passwd")
        call = Harness(working_dir=root).call(file_operations.FindFiles(patterns=("a.md", "*.md")))
        with pytest.raises(errors.ToolFailed) as failed:
            await FindFilesPerformer(Workspaces([root])).perform(call)

        assert (failed.value.code, failed.value.detail["path"]) == ("path_outside_workspace", "out.md")

    async def test_a_workspace_elsewhere_is_refused(self, root: Path) -> None:
        """A run folder that names another part of the disk sees nothing of it."""
        call = Harness(working_dir=root.parent).call(file_operations.FindFiles(patterns=("*",)))
        with pytest.raises(errors.ToolFailed) as failed:
            await FindFilesPerformer(Workspaces([root])).perform(call)

        assert failed.value.code == "workspace_not_allowed"

    async def test_a_look_that_takes_too_long_is_over(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file system that does not answer fails the step at its time-out, and not the loop."""
        go = threading.Event()
        monkeypatch.setattr(globs, "fitting", lambda *_: go.wait(30))
        call = Harness(working_dir=root).call(file_operations.FindFiles(patterns=("*",), timeout_seconds=0.05))
        with pytest.raises(errors.ToolFailed) as failed:
            await FindFilesPerformer(Workspaces([root])).perform(call)
        go.set()

        assert (failed.value.code, failed.value.detail) == ("timeout", {"timeout_seconds": 0.05})
