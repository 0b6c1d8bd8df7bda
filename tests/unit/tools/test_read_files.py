"""Reading files as text: whole files for steps, and the first parts of others as excerpts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.domain import file_operations
from app.tools import confinement, file_performers
from app.tools.file_performers import ReadFilesPerformer
from app.tools.workspace import Workspaces
from tests.unit.calls import Harness


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


async def read(root: Path, *paths: str, **given: Any) -> dict[str, Any]:
    """Return the files of the output."""
    call = Harness(working_dir=root).call(file_operations.ReadFiles(paths=paths, **given))
    files: dict[str, Any] = (await ReadFilesPerformer(Workspaces([root])).perform(call)).output["files"]
    return files


async def refusal(root: Path, *paths: str, **given: Any) -> errors.ToolFailed:
    """Return the failure to read some files."""
    with pytest.raises(errors.ToolFailed) as failed:
        await read(root, *paths, **given)
    return failed.value


class TestWhole:
    """Files that are read whole."""

    async def test_a_file_is_read_as_it_is(self, root: Path) -> None:
        """Line ends, byte order marks and NUL characters of a file are kept, under the path as requested."""
        text = "\ufeffä\r\n\0${not} a variable\n"
        (root / "a.md").write_bytes(text.encode())
        (root / "empty").touch()
        told = await read(root, "./a.md", "empty")

        assert told["./a.md"] == {"text": text, "size_bytes": len(text.encode()), "folder": False}
        assert told["empty"] == {"text": "", "size_bytes": 0, "folder": False}

    async def test_a_path_through_a_file_is_not_called_missing(self, root: Path) -> None:
        """A path through a file fails with a message that a folder above it is not a folder."""
        (root / "a.md").touch()
        failure = await refusal(root, "a.md/b")

        assert failure.message == "'a.md/b' names a folder above it that is not a folder."

    @pytest.mark.parametrize(
        ("path", "code"),
        [
            ("none.md", "file_not_found"),
            ("a.md/b", "file_not_found"),
            ("broken", "file_not_found"),
            ("folder", "not_a_file"),
            (".", "not_a_file"),
            ("pipe", "not_a_file"),
            ("latin.md", "not_text"),
            ("../a.md", "path_outside_workspace"),
            ("/etc/hosts", "path_outside_workspace"),
            ("out", "path_outside_workspace"),
            (".git/config", "path_outside_workspace"),
        ],
    )
    async def test_an_unreadable_path_fails_with_its_reason(self, root: Path, path: str, code: str) -> None:
        """A path that cannot be read fails with the code of its reason and the path; a named pipe does not block."""
        (root / "a.md").touch()
        (root / "folder").mkdir()
        (root / "latin.md").write_bytes(b"caf\xe9")
        (root / "broken").symlink_to("nowhere")
        (root / "out").symlink_to("/etc/hosts")
        os.mkfifo(root / "pipe")
        failure = await refusal(root, "a.md", path)

        assert (failure.code, failure.detail["path"]) == (code, path)

    async def test_links_inside_are_followed(self, root: Path) -> None:
        """A link inside the workspace is read as its target."""
        (root / "a.md").write_text("here")
        (root / "link").symlink_to("a.md")

        assert (await read(root, "link"))["link"]["text"] == "here"

    async def test_there_is_a_limit(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The limit applies to one file and to all files together."""
        monkeypatch.setattr(file_performers, "WHOLE_BYTES", 10)
        (root / "ten").write_text("x" * 10)
        (root / "eleven").write_text("x" * 11)
        (root / "one").write_text("x")

        assert len((await read(root, "ten", "ten"))["ten"]["text"]) == 10
        assert (await refusal(root, "eleven")).code == "file_too_large"
        assert (await refusal(root, "ten", "one")).detail == {"path": "one", "size_bytes": 1, "limit_bytes": 10}

    async def test_sixteen_mebibytes_are_read(self, root: Path) -> None:
        """A file of sixteen mebibytes is read, and one byte more is refused."""
        (root / "large").write_bytes(b"x" * file_performers.WHOLE_BYTES)
        told = await read(root, "large")
        with (root / "large").open("ab") as file:
            file.write(b"x")

        assert len(told["large"]["text"]) == file_performers.WHOLE_BYTES
        assert (await refusal(root, "large")).code == "file_too_large"

    async def test_a_file_that_vanishes_before_it_is_read(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file that vanishes before it is read fails the step; an excerpt of it has no text."""
        open_file = confinement.Descent.open_file

        def vanishing(descent: confinement.Descent, parts: tuple[str, ...]) -> int:
            (root / "a.md").unlink(missing_ok=True)
            return open_file(descent, parts)

        monkeypatch.setattr(confinement.Descent, "open_file", vanishing)
        (root / "a.md").write_text("x")
        told = await read(root, excerpts=("a.md",))
        (root / "a.md").write_text("x")

        assert told["a.md"] == {"text": None, "size_bytes": 0, "folder": False}
        assert (await refusal(root, "a.md")).code == "file_not_found"


class TestExcerpts:
    """Files that are read as excerpts."""

    async def test_a_path_that_is_not_a_file_has_no_text(self, root: Path) -> None:
        """Folders, pipes, broken links and missing files have no text in an excerpt and do not fail the step."""
        (root / "folder").mkdir()
        (root / "broken").symlink_to("nowhere")
        os.mkfifo(root / "pipe")
        told = await read(root, excerpts=("folder", "none", "broken", "pipe"))

        assert told["folder"] == {"text": None, "size_bytes": 0, "folder": True}
        assert [told[name] for name in ("none", "broken", "pipe")] == [
            {"text": None, "size_bytes": 0, "folder": False}
        ] * 3

    async def test_together_they_have_so_many_bytes(self, root: Path) -> None:
        """Excerpts share a number of bytes in their order; sizes are those of the whole files."""
        for name in "abcd":
            (root / name).write_text(name * 4)
        told = await read(root, excerpts=("b", "a", "d", "c"), excerpt_bytes=10)

        assert {name: facts["text"] for name, facts in told.items()} == {"b": "bbbb", "a": "aaaa", "d": "dd", "c": ""}
        assert {facts["size_bytes"] for facts in told.values()} == {4}

    @given(text=st.text("aé€\U0001f600", max_size=12), limit=st.integers(0, 40))
    def test_a_cut_leaves_no_half_character(self, text: str, limit: int) -> None:
        """An excerpt has only whole characters and is at most three bytes shorter than its limit."""
        content = text.encode()
        shown = file_performers._beginning(content[:limit], len(content))

        assert text.startswith(shown)
        assert len(shown.encode()) >= min(limit, len(content)) - 3

    async def test_bytes_that_are_not_utf8_are_replaced(self, root: Path) -> None:
        """Bytes of an excerpt that are not UTF-8 are replaced, in the middle and at the end."""
        (root / "a").write_bytes(b"a\xffb\xc3")

        assert (await read(root, excerpts=("a",)))["a"]["text"] == "a\ufffdb\ufffd"

    async def test_a_whole_file_stays_whole(self, root: Path) -> None:
        """A file that is requested whole and as an excerpt has its whole text."""
        (root / "a").write_text("x" * 20)

        assert (await read(root, "a", excerpts=("a",), excerpt_bytes=5))["a"]["text"] == "x" * 20

    @pytest.mark.parametrize("path", ["out", "../a", ".git/config"])
    async def test_an_excerpt_from_outside_fails_the_step(self, root: Path, path: str) -> None:
        """An excerpt of a path outside the workspace fails the step, also behind a link."""
        (root / "out").symlink_to("/etc/hosts")

        assert (await refusal(root, excerpts=(path,))).code == "path_outside_workspace"

    async def test_no_descriptor_stays_open(self, root: Path) -> None:
        """No descriptor stays open after a success or a failure."""
        (root / "a").write_text("x")
        before = len(os.listdir("/proc/self/fd"))
        await read(root, "a", excerpts=("a", "none"))
        await refusal(root, "a", "none")

        assert len(os.listdir("/proc/self/fd")) == before
