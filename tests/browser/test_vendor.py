"""The accessibility checker is the published file."""

from __future__ import annotations

import hashlib
import re

from tests.browser import pages


def test_the_checker_is_as_published() -> None:
    """The vendored file has the hash recorded in the README beside it, and its licence is included."""
    folder = pages.AXE.parent
    recorded = re.search(r"sha256: ([0-9a-f]{64})", (folder / "README.md").read_text(encoding="utf-8"))

    assert recorded is not None
    assert hashlib.sha256(pages.AXE.read_bytes()).hexdigest() == recorded[1]
    assert "Mozilla Public License" in (folder / "axe-core.LICENSE.txt").read_text(encoding="utf-8")
