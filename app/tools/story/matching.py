"""Matching: compare texts by their words, ignoring accents, case and common endings."""

from __future__ import annotations

import re
import unicodedata

_TOKEN = re.compile(r"[^\W_]{1,64}")
STOPWORDS = frozenset(
    "a an and any are as at be been but by can could did do does for from had has have he her here him his "
    "how i if in into is it its itself may me my no nor not of off on one or our out over own she should so "
    "some such than that the their them then there these they this those to too up us was we were what when "
    "where which while who whom whose why will with would you your shall let per via s t d ll re ve m".split()
)
"""Words without information about the subject of a text."""

_IRREGULAR = {
    form: base
    for base, forms in {
        "break": "broke broken", "bring": "brought", "come": "came", "die": "dead death died dies dying",
        "draw": "drew drawn", "fall": "fell fallen", "find": "found", "give": "gave given gives", "go": "went gone",
        "hide": "hid hidden hides", "hold": "held", "keep": "kept", "know": "knew known", "lend": "lent",
        "lie": "lay lain", "light": "lit",
        "lose": "lost loses", "make": "made", "meet": "met", "ring": "rang rung", "run": "ran",
        "see": "saw seen", "sing": "sang sung", "sink": "sank sunk", "speak": "spoke spoken", "stand": "stood",
        "strike": "struck stricken", "swear": "swore sworn", "take": "took taken", "tell": "told",
        "write": "wrote written",
    }.items()
    for form in forms.split()
}  # fmt: skip
_ENDINGS = ("ings", "ing", "ies", "ied", "es", "ed", "s", "ly")
_SHORTEST_STEM = 3


def tokens(text: str) -> list[str]:
    """Return the words and numbers of a text, folded."""
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(character for character in decomposed if not unicodedata.combining(character))
    return _TOKEN.findall(text.casefold())


def terms(text: str) -> list[str]:
    """Return the stems of the significant words, each once, in order."""
    return list(dict.fromkeys(stem(token) for token in tokens(text) if token not in STOPWORDS))


def stem(token: str) -> str:
    """Return a word without its ending, so that `opens`, `opened` and `opening` are one."""
    token = _IRREGULAR.get(token, token)
    for ending in _ENDINGS:
        if token.endswith(ending) and len(token) - len(ending) >= _SHORTEST_STEM:
            base = token[: -len(ending)]
            return base + "y" if ending in {"ies", "ied"} else _single(base)
    return token.removesuffix("e") if len(token) > _SHORTEST_STEM else token


def overlap(wanted: list[str], offered: set[str]) -> float:
    """Return the share of the wanted terms that is offered, 0 to 1."""
    return sum(term in offered for term in wanted) / len(wanted) if wanted else 0.0


def _single(base: str) -> str:
    doubled = len(base) > _SHORTEST_STEM and base[-1] == base[-2] and base[-1] not in "lsz"
    trimmed = base[:-1] if doubled else base
    return trimmed.removesuffix("e") if len(trimmed) > _SHORTEST_STEM else trimmed
