"""Checking evidence: word-for-word quotes, files of the workspace, receipts of the session."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.domain import operations
from app.tools.checks import FILE_BYTES, EvidencePerformer
from app.tools.workspace import Workspaces
from tests.unit.calls import Harness

TEXT = "The harbour lay quiet.\r\nKael saw\n    that the lantern was dark, and “nobody” came.\n"
RECEIPTS = {
    "rcpt_own": {"receipt_id": "rcpt_own", "session_id": "sess_1", "run_id": "r", "key": "find", "tool": "finder"},
    "rcpt_other": {"receipt_id": "rcpt_other", "session_id": "sess_2", "run_id": "r", "key": "find", "tool": "finder"},
}


async def prove_receipt(receipt_id: str) -> Any:
    if receipt_id == "rcpt_altered":
        raise errors.Conflict("the receipt rcpt_altered holds another payload", code="receipt_altered")
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
    """Return the evidence found for a claim."""
    call = Harness(working_dir=root).call(operations.CheckEvidence(**claim))
    return (await EvidencePerformer(Workspaces([root]), prove_receipt).perform(call)).output


async def rejection(root: Path, **claim: Any) -> errors.EvidenceRejected:
    """Return the error that rejects a claim."""
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
        '"nobody" came',
        "  The   harbour ",
        TEXT,
    ],
)
async def test_a_quote_is_found_regardless_of_white_space(root: Path, quote: str) -> None:
    """A quote is found word for word; white space and line ends do not matter."""
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
        ("Kaël saw", ""),
    ],
)
async def test_changed_words(root: Path, quote: str, found: str) -> None:
    """A changed word, letter, mark or part of a word rejects the quote, and the error has the part that matches."""
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
        ("Story/../../outside.md", "path_outside_workspace"),
        ("Story/../Story/a.md", "path_outside_workspace"),
        ("away/outside.md", "path_outside_workspace"),
        ("Story/here/../../outside.md", "path_outside_workspace"),
        ("ring", "path_outside_workspace"),
        ("~/outside.md", "path_outside_workspace"),
        ("file:///etc/passwd", "file_not_found"),
        ("..\\outside.md", "file_not_found"),
        ("%2e%2e/outside.md", "file_not_found"),
        ("story/A.md", "file_not_found"),
        ("Story/a\u200b.md", "file_not_found"),
        ("Story/./a.md/x", "file_not_found"),
        (".Git/config", "path_outside_workspace"),
        (".CONTROL-ROOM/agents.json", "path_outside_workspace"),
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
    """A path outside the workspace or to a file without text rejects the evidence, with its reason."""
    (root.parent / "outside.md").write_text("the lantern was dark", encoding="utf-8")
    (root / "Story" / "link.md").symlink_to(root.parent / "outside.md")
    (root / "away").symlink_to(root.parent)
    (root / "Story" / "here").symlink_to(root / "Story")
    (root / "ring").symlink_to("ring")
    (root / "binary").write_bytes(b"the lantern\0was dark")
    (root / "latin").write_bytes("schön".encode("latin-1"))
    os.mkfifo(root / "pipe")
    rejected = await rejection(root, quote="the lantern was dark", path=path)

    assert rejected.code == code
    assert rejected.detail["evidence"]["form"] == "file"


@pytest.mark.slow
async def test_large_files(root: Path) -> None:
    """Files of up to sixteen mebibytes are searched to their end; larger ones are refused."""
    ending = b"\nthe lantern was dark"
    (root / "large").write_bytes(b"wor ds" * ((FILE_BYTES - len(ending)) // 6) + ending)
    with (root / "huge").open("wb") as huge:
        huge.truncate(FILE_BYTES + 1)

    assert (await look(root, quote="the lantern was dark", path="large"))["form"] == "file"
    assert (await rejection(root, quote="the", path="huge")).code == "file_too_large"


async def test_a_forbidden_workspace_is_not_an_evidence_failure(root: Path) -> None:
    """A run in a workspace that is not allowed fails with `workspace_not_allowed`, not with an evidence failure."""
    call = Harness(working_dir=Path("/")).call(operations.CheckEvidence(quote="x", path="etc/passwd"))
    with pytest.raises(errors.ToolFailed) as failed:
        await EvidencePerformer(Workspaces([root]), prove_receipt).perform(call)

    assert failed.value.code == "workspace_not_allowed"


async def test_receipts(root: Path) -> None:
    """A receipt of the session is found; one of another session is as unknown as one that does not exist."""
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

    altered = await rejection(root, receipt_id="rcpt_altered")
    assert altered.code == "receipt_altered"
    assert "holds another payload" in altered.message


async def test_links_within_the_workspace_are_followed(root: Path) -> None:
    """A file inside the workspace can be quoted by the name of a link to it."""
    (root / "Story" / "other.md").symlink_to("a.md")
    (root / "tale").symlink_to(root / "Story")

    for path in ("Story/other.md", "tale/a.md", "tale//./other.md"):
        assert (await look(root, quote="the lantern was dark", path=path))["path"] == path


@pytest.mark.parametrize("form", ["NFC", "NFD"])
async def test_names_with_accents(root: Path, form: Any) -> None:
    """A file is found in either encoding of accents, and of two names that look alike each names its own file."""
    path, other = (unicodedata.normalize(kind, "Café/ö.md") for kind in (form, "NFD" if form == "NFC" else "NFC"))
    (root / other).parent.mkdir()
    (root / other).write_text("the lantern was dark", encoding="utf-8")

    assert (await look(root, quote="lantern was", path=path))["path"] == path
    (root / path).parent.mkdir()
    (root / path).write_text("the lantern was lit", encoding="utf-8")
    assert (await look(root, quote="was lit", path=path))["path"] == path
    assert (await look(root, quote="was dark", path=other))["path"] == other
