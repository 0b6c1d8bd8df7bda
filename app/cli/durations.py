"""Durations on the command line: `90`, `90s`, `30m`, `2h`, `1h30m`, `1d`."""

from __future__ import annotations

import re

import click

_UNITS = (86_400, 3_600, 60, 1)
_PARTS = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s?)?")


def duration(text: str) -> int:
    """Return the seconds of an option that takes a duration; the type of such options.

    Raises:
        click.BadParameter: the text is not a duration.
    """
    parts = _PARTS.fullmatch(text) if text else None
    if parts is None:
        raise click.BadParameter(f"{text!r:.80} is not a duration; write it as 90s, 30m, 2h, 1h30m or 1d")
    return sum(int(count or 0) * seconds for count, seconds in zip(parts.groups(), _UNITS, strict=True))
