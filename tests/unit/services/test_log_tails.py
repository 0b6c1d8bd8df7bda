"""Log tails: followers of a log that another one replaces."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from app import clock
from app.engine import stores
from app.services import log_tails
from app.storage.disk import os_disk
from app.storage.runs import log_files

BEGIN = stores.LogPart(content=b"", offset=0, size_bytes=0, version="")


class Logs:
    """The logs of one run, which changes its log before every look."""

    def __init__(self, folder: Path, texts: list[str]) -> None:
        self._disk = os_disk.OsDisk(folder)
        self._folder = folder
        self._texts = iter(texts)
        self.has_ended = False

    async def read_log_part(self, _: str, name: str, offset: int, most: int) -> stores.LogPart:
        """Return a part of a log, as a store does."""
        return log_files.part(self._disk, name, offset, most)

    async def next(self) -> bool:
        """Write the next log, and return whether there was none."""
        text = next(self._texts, None)
        if text is not None:
            (self._folder / "a.txt").write_text(text, encoding="utf-8")
        return text is None


class Instant(clock.SystemClock):
    """A clock on which every wait ends at once."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


async def followed(folder: Path, texts: list[str]) -> list[str]:
    """Return the texts that a follower of a log gets, with `reset` where it begins again."""
    logs = Logs(folder, texts)
    tails = log_tails.LogTails(store=cast("stores.RunStore", logs), clock=Instant(), stopping=asyncio.Event())
    pieces = [piece async for piece in tails.follow("r", "a.txt", BEGIN, logs.next)]
    assert pieces[-1].kind == "end"
    assert pieces[-1].offset == len(texts[-1].encode())
    return [piece.text if piece.kind == "text" else piece.kind for piece in pieces[:-1]]


@pytest.mark.parametrize(
    "second",
    ["b\n", "b", "bbb\nc\n", "another\none\n" + "x" * log_tails.OVERLAP_BYTES],
    ids=["as long", "shorter", "longer", "much longer"],
)
async def test_a_log_that_replaces_another_is_sent_whole(tmp_path: Path, second: str) -> None:
    """A follower is sent the whole log of the next attempt, however long it is."""
    assert await followed(tmp_path, ["a\n", second]) == ["a\n", "reset", second]


@pytest.mark.parametrize("more", ["", "ü", "ü\n" * log_tails.OVERLAP_BYTES])
async def test_a_log_that_grows_is_sent_once(tmp_path: Path, more: str) -> None:
    """A log that was rewritten with the text of before continues where it was."""
    texts = ["one ü\n", "one ü\n", f"one ü\n{more}", f"one ü\n{more}end\n"]

    assert await followed(tmp_path, texts) == ["one ü\n", *([more] if more else []), "end\n"]
