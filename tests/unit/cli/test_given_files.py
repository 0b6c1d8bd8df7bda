"""Files named on a command line."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from app import errors
from app.cli import arguments, plans, root

READERS: list[Callable[[Path], object]] = [arguments.read_file, plans.read_plan, arguments.read_text]


@pytest.mark.parametrize("read", READERS)
def test_file_that_never_ends_is_refused(read: Callable[[Path], object]):
    """A file without an end, such as a device, is read only up to the limit and then refused."""
    with pytest.raises(errors.TooLarge, match="/dev/zero has more than 4194304 bytes"):
        read(Path("/dev/zero"))


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(("name", "reason"), [("absent.json", "No such file or directory"), (".", "Is a directory")])
def test_an_unreadable_file_is_named_once_with_the_reason(
    tmp_path: Path, read: Callable[[Path], object], name: str, reason: str
):
    """The message about an unreadable file has its path once, and the reason."""
    with pytest.raises(errors.RequestInvalid) as refused:
        read(tmp_path / name)

    assert refused.value.message == f"{tmp_path / name} cannot be read: {reason}"
    assert refused.value.code == "file_unreadable"


@pytest.mark.parametrize(("target", "code"), [("endless.json", 2), ("folder.json", 2), ("absent.json", 4)])
def test_validate_refuses_an_unreadable_recipe_by_its_path(target: str, code: int, tmp_path: Path):
    """`recipes validate` refuses a path that is not a readable recipe file, and names it."""
    (tmp_path / "endless.json").symlink_to("/dev/zero")
    (tmp_path / "folder.json").mkdir()
    told = io.StringIO()
    with mock.patch("sys.stderr", told):
        ended = root.execute(["recipes", "validate", str(tmp_path / target), "--project", str(tmp_path)])

    assert ended == code
    assert target in told.getvalue()


def test_a_byte_order_mark_is_dropped_from_a_text(tmp_path: Path):
    """A byte order mark is dropped from a text."""
    file = tmp_path / "args.json"
    file.write_text(json.dumps({"a": 1}), encoding="utf-8-sig")

    assert arguments.read_text(file) == '{"a": 1}'
