"""Abstentions: recognises replies of agents that abstain, and removes markup around words."""

from __future__ import annotations

import re

TAG = r"</?[A-Za-z][A-Za-z0-9]{0,9}\s?/?>"  # Form of an HTML tag.
COLON = "[:\ufe13\ufe55\uff1a]"  # Form of a colon.

UNSEEN = (
    "\u00ad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\ufe0e\ufe0f\ufeff"
)
"""Invisible characters."""

_MARKS = f"*_~`{UNSEEN}"
_EDGES = _MARKS + "".join(filter(str.isspace, map(chr, range(0x3001))))
_ABSTAINED = re.compile(
    rf"(?:{TAG}|[\s>#{_MARKS}]|[-+][ \t])*+ABSTAIN"
    rf"(?:[.!\s{_MARKS}]*+|[ \t{_MARKS}]*+(?:{COLON}|[–—]|-\s|[.!]\s|\r?\n)(?P<reason>.*))",
    re.DOTALL,
)


def reason(reply: str) -> str | None:
    """Return the reason of a reply that is an abstention as a whole; None for any other reply."""
    abstained = _ABSTAINED.fullmatch(reply)
    return (bare(abstained["reason"] or "") or "it gave no reason") if abstained else None


def bare(text: str) -> str:
    """Return a text without the blanks, marks of emphasis and invisible characters around it."""
    return text.strip(_EDGES)
