"""
Looking for evidence: quotes that stand word for word, files that are in the workspace, receipts of the session.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.engine import operations
from app.tools.evidence import FILE_BYTES, EvidencePerformer, holds
from app.tools.workspaces import Workspaces
from tests.unit.calls import Desk

TEXT = "The harbour lay quiet.\r\nKael saw\n    that the lantern was dark, and “nobody” came.\n"
RECEIPTS = {
    "rcpt_own": {"receipt_id": "rcpt_own", "session_id": "sess_1", "run_id": "r", "key": "find", "tool": "finder"},
    "rcpt_other": {"receipt_id": "rcpt_other", "session_id": "sess_2", "run_id": "r", "key": "find", "tool": "finder"},
}


async def find_receipt(receipt_id: str) -> Any:
    if receipt_id not in RECEIPTS:
        raise errors.NotFound(code="receipt_not_found")
    return RECEIPTS[receipt_id]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "Story").mkdir(parents=True)
    (made / "Story" / "a.md").write_bytes(TEXT.encode())
    return made


async def look(root: Path, **claim: Any) -> Any:
    """
    Return what is found of a claim.
    """
    call = Desk(working_dir=root).call(operations.CheckEvidence(**claim))
    return (await EvidencePerformer(Workspaces([root]), find_receipt).perform(call)).output


async def rejection(root: Path, **claim: Any) -> errors.EvidenceRejected:
    """
    Return why a claim is rejected.
    """
    with pytest.raises(errors.EvidenceRejected) as rejected:
        await look(root, **claim)
    assert "evidence" in rejected.value.detail
    return rejected.value


@pytest.mark.parametrize(
    "quote",
    [
        "the lantern was dark",
        "Kael saw that the lantern",
        "quiet. Kael",
        "dark, and “nobody” came.",
        "  The   harbour ",
        TEXT,
    ],
)
async def test_words_that_stand_there(root: Path, quote: str) -> None:
    """White space does not count, where lines end neither."""
    found = await look(root, quote=quote, path="./Story/a.md")

    assert (found["form"], found["path"], len(found["sha256"])) == ("file", "./Story/a.md", 64)


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("the lantern was bright", "the lantern was"),
        ("The lantern was dark", "The"),
        ("the lantern was dark and", "the lantern was dark"),
        ("lantern dark", "lantern"),
        ("that the lantern was dar", "that the lantern was dar"),
        ("arbour lay quiet", "arbour lay quiet"),
        ("“nobody” came. Never", "“nobody” came."),
        ('"nobody" came', ""),
        ("Kaël saw", ""),
    ],
)
async def test_changed_words(root: Path, quote: str, found: str) -> None:
    """Other words, letters, marks or halves of words are not found, and it is told how far the quote holds."""
    rejected = await rejection(root, quote=quote, path="Story/a.md")

    assert rejected.code == "quote_not_found"
    assert rejected.detail["evidence"] == {"form": "file", "path": "Story/a.md", "quote": quote, "found": found}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("none.md", "file_not_found"),
        ("Story", "not_a_file"),
        ("../outside.md", "path_outside_workspace"),
        ("/etc/passwd", "path_outside_workspace"),
        ("Story/link.md", "path_outside_workspace"),
        (".control-room/runs/x/start.json", "path_outside_workspace"),
        (".git/config", "path_outside_workspace"),
        ("a\0b", "path_outside_workspace"),
        ("", "not_a_file"),
        ("x" * 300, "file_not_found"),
        ("binary", "not_text"),
        ("latin", "not_text"),
        ("pipe", "not_a_file"),
    ],
)
async def test_files_that_cannot_be_quoted(root: Path, path: str, code: str) -> None:
    """A path that leads elsewhere, or to no text, is an evidence failure with its reason."""
    (root.parent / "outside.md").write_text("the lantern was dark", encoding="utf-8")
    (root / "Story" / "link.md").symlink_to(root.parent / "outside.md")
    (root / "binary").write_bytes(b"the lantern\0was dark")
    (root / "latin").write_bytes("schön".encode("latin-1"))
    os.mkfifo(root / "pipe")
    rejected = await rejection(root, quote="the lantern was dark", path=path)

    assert rejected.code == code
    assert rejected.detail["evidence"]["form"] == "file"


async def test_large_files(root: Path) -> None:
    """Sixteen mebibytes are searched, to their end; more are not."""
    ending = b"\nthe lantern was dark"
    (root / "large").write_bytes(b"wor ds" * ((FILE_BYTES - len(ending)) // 6) + ending)
    with (root / "huge").open("wb") as huge:
        huge.truncate(FILE_BYTES + 1)

    assert (await look(root, quote="the lantern was dark", path="large"))["form"] == "file"
    assert (await rejection(root, quote="the", path="huge")).code == "file_too_large"


async def test_a_workspace_that_is_not_allowed_is_no_evidence_failure(root: Path) -> None:
    """Where the run may not look at all, that is told as what it is."""
    call = Desk(working_dir=Path("/")).call(operations.CheckEvidence(quote="x", path="etc/passwd"))
    with pytest.raises(errors.ToolFailed) as failed:
        await EvidencePerformer(Workspaces([root]), find_receipt).perform(call)

    assert failed.value.code == "workspace_not_allowed"


async def test_receipts(root: Path) -> None:
    """A receipt of the session is found; one of another session counts as little as one that nobody has."""
    found = await look(root, receipt_id="rcpt_own")

    assert found == {
        "form": "receipt",
        "receipt_id": "rcpt_own",
        "run_id": "r",
        "key": "find",
        "tool": "finder",
        "sha256": None,
    }
    for name in ("rcpt_other", "rcpt_forged"):
        rejected = await rejection(root, receipt_id=name)
        assert rejected.code == "receipt_unknown"
        assert rejected.detail["evidence"] == {"form": "receipt", "receipt_id": name}


@given(st.lists(st.text(alphabet="ab ,.é字\n\t", max_size=12), max_size=6), st.data())
def test_every_part_between_blanks_is_found(parts: list[str], data: st.DataObject) -> None:
    """Whatever runs from the beginning of a word to the end of one is found, however it is broken."""
    words = " ".join(parts).split()
    begin = data.draw(st.integers(0, len(words)))
    quote = data.draw(st.sampled_from([" ", "\n", "\t "])).join(
        words[begin : data.draw(st.integers(begin, len(words)))]
    )

    assert holds("\n".join(parts), quote) == bool(quote.strip())


def test_pieces_do_not_show() -> None:
    """A word that two pieces of a large text share is one word, and blanks between them are one."""
    for length in range(65_530, 65_540):
        for gap in ("", " ", "  \n"):
            text = "x" * length + gap + "tail end"
            assert holds(text, "tail end") == bool(gap)
            assert holds(text, ("x" * length + gap + "tail")) is True


def test_scripts_without_spaces() -> None:
    """Where words are not parted by spaces, any part of a sentence is a quote."""
    assert holds("灯笼已经熄灭了。", "已经熄灭")


def test_many_places_in_words_take_no_time_to_speak_of() -> None:
    """A text of one letter does not hold anybody up."""
    assert not holds("a" * 1_000_000, "a" * 100)
