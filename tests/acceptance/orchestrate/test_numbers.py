"""Each numbered item of the document has its test."""

from __future__ import annotations

import re
from pathlib import Path

NAMED = re.compile(r"^def test_(v1[23]_)?(\d+)_", re.MULTILINE)


def test_every_item_has_one_test() -> None:
    """Items 1 to 55, v1.2 1 to 9 and v1.3 1 to 10 have one test each, named by its number."""
    found = [
        (version, int(number))
        for file in Path(__file__).parent.glob("test_*.py")
        for version, number in NAMED.findall(file.read_text())
    ]
    wanted = [
        (version, number) for version, last in (("", 55), ("v12_", 9), ("v13_", 10)) for number in range(1, last + 1)
    ]

    assert sorted(found) == sorted(wanted)
