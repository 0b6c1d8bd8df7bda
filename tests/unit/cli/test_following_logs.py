"""`runs logs --follow`: a log that another one replaces."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast

import pytest

from app.cli import runs
from app.cli.client import Client


class Logs:
    """A client that follows a log which is replaced once."""

    async def follow_log(self, run_id: str, name: str) -> AsyncGenerator[str | None, None]:
        """Yield the texts of two logs, and the end of each."""
        for text in ("first\n", None, "second\n", "end\n", None):
            yield text


async def test_a_log_that_replaces_another_is_announced(capsys: pytest.CaptureFixture[str]) -> None:
    """Texts of the log of a next attempt do not look like a part of the log before."""
    code = await runs._followed(cast("Client", Logs()), "r", "a.txt")
    printed = capsys.readouterr()

    assert (code, printed.out) == (0, "first\nsecond\nend\n")
    assert printed.err == "another log replaced this one, such as that of the next attempt; it begins here\n"
