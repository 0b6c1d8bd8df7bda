"""Forms: the patterns of names in recipes, in words for people."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from app import errors

_BROKEN = " does not have the form "


def in_words(found: Iterable[errors.Flaw], forms: Mapping[str, str]) -> Iterator[errors.Flaw]:
    """Return flaws with words in place of regular expressions.

    Args:
        forms: What a text must be, by its pattern.
    """
    for flaw in found:
        shown, _, pattern = flaw.message.rpartition(_BROKEN)
        if shown and pattern in forms:
            yield dataclasses.replace(flaw, message=f"{shown} is not allowed here: it {forms[pattern]}")
        else:
            yield flaw
