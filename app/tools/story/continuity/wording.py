"""Wording: the same words for what is written in several ways."""

from __future__ import annotations

import re

_CONTRACTIONS = (
    (re.compile(r"n't\b"), " not"), (re.compile(r"'m\b"), " am"), (re.compile(r"'re\b"), " are"),
    (re.compile(r"'ve\b"), " have"), (re.compile(r"'ll\b"), " will"), (re.compile(r"(?<=\w)'d\b"), " had"),
    (re.compile(r"\b(he|she|it|that|there|who|what|here)'s\b", re.IGNORECASE), r"\1 is"),
)  # fmt: skip
_UNITS = "one two three four five six seven eight nine".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SCORES = {"three": "sixty", "four": "eighty", "two": "forty"}
_TURNED = re.compile(rf"\b({'|'.join(_UNITS)})[- ]and[- ]({'|'.join(_TENS)})\b", re.IGNORECASE)
_SCORE = re.compile(
    r"\b(two|three|four) ?-?score(?: (?:years )?and (ten|one|two|three|four|five|six|seven|eight|nine))?\b",
    re.IGNORECASE,
)
_AMOUNTS = (
    (re.compile(r"\b(?:a |one )quarter of an hour\b", re.IGNORECASE), "15 minutes"),
    (re.compile(r"\bthree[- ]quarters of an hour\b", re.IGNORECASE), "45 minutes"),
    (re.compile(r"\bhalf an hour\b|\ba half[- ]hour\b", re.IGNORECASE), "30 minutes"),
    (re.compile(r"\ban hour and a quarter\b", re.IGNORECASE), "75 minutes"),
    (re.compile(r"\ban hour and a half\b", re.IGNORECASE), "90 minutes"),
    (re.compile(r"\bhalf a day(?:'s)?\b", re.IGNORECASE), "12 hours"),
    (re.compile(r"\ba fortnight(?='s)", re.IGNORECASE), "two weeks"),
    (re.compile(r"\bhalf a dozen\b", re.IGNORECASE), "six"),
    (re.compile(r"\b(?:a|one) dozen\b", re.IGNORECASE), "twelve"),
)  # fmt: skip
# What is longer is no prose, and would cost the rules more than linear time.
_LONG_WORD = re.compile(r"\w{80,}")
_LONGEST_PASSAGE = 2_000
_PASSIVE = frozenset("born killed drowned buried built opened founded kept worn owned carried hanged murdered".split())
_FINITE = frozenset(
    "Stands Lies Sits Hangs Belongs Lives Works Has Had Wears Walks Limps Keeps Died Lost Married Writes Carries Runs".split()
)


def plain(text: str) -> str:
    """Return a text with straight apostrophes, without marks of emphasis, and with its contractions written out."""
    bare = (
        _LONG_WORD.sub("…", text[:_LONGEST_PASSAGE])
        .replace("’", "'")
        .replace("*", "")
        .replace("_", " ")
        .replace("‘", "'")
    )
    for pattern, full in (*_CONTRACTIONS, *_AMOUNTS):
        bare = pattern.sub(full, bare)
    bare = _SCORE.sub(_counted, _TURNED.sub(r"\2-\1", bare))
    return " ".join(bare.split())


def _counted(match: re.Match[str]) -> str:
    tens, more = _SCORES[match[1].lower()], (match[2] or "").lower()
    return _TENS[_TENS.index(tens) + 1] if more == "ten" else f"{tens}-{more}" if more else tens


def with_subject(text: str, name: str, is_person: bool) -> str:
    """Return a sentence of a card with its subject: `Stands on the left bank` and `It stands on …` name it."""
    if text.startswith("It ") and not is_person:
        return f"{name} {text[3:]}"
    verb = text.split(" ", 1)[0]
    if verb.lower() in _PASSIVE:
        return f"{name} was {verb.lower()}{text[len(verb) :]}"
    if verb in _FINITE:
        return f"{name} {verb.lower()}{text[len(verb) :]}"
    return text
