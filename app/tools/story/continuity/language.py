"""The words and expressions by which the rules read English: `words.toml` and `patterns.toml`."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.tools.story import dates

PERSON = r"@[?~]?\d+\b"  # A person or thing of the cast in a passage's text; `?` where a pronoun may mean another.

_WORDS, _PATTERNS = (
    tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    for name in ("words.toml", "patterns.toml")
)
_MACRO = re.compile(r"\{([a-z]\w*)\}")
# A longer word is not prose, and would cost the rules more than linear time.
_LONG_WORD = re.compile(r"\w{80,}")
_LONGEST_PASSAGE = 2_000
_SCORES = {"three": "sixty", "four": "eighty", "two": "forty"}


def listed(name: str) -> tuple[str, ...]:
    """Return a list of words, or those of all rows of a table, in their order."""
    stated = _WORDS[name]
    return tuple((" ".join(stated.values()) if isinstance(stated, dict) else stated).split())


@functools.cache
def words(*names: str) -> frozenset[str]:
    """Return the words of one or more lists."""
    return frozenset(word for name in names for word in listed(name))


@functools.cache
def classes(name: str) -> Mapping[str, str]:
    """Return each word of a table with the names of its rows: `{"chestnut": "brown red"}`."""
    found: dict[str, str] = {}
    for row, members in _WORDS[name].items():
        for word in members.split():
            found[word] = f"{found[word]} {row}" if word in found else row
    return found


class Patterns:
    """The expressions of a section of `patterns.toml`, compiled on first use.

    `{name}` in an expression is another one of its section or of `common`, or any word of a list of that name.
    """

    def __init__(self, section: str) -> None:
        self._section: Mapping[str, Any] = _PATTERNS[section]

    def __getattr__(self, name: str) -> re.Pattern[str]:
        compiled = re.compile(self._expanded(self._section[name]))
        setattr(self, name, compiled)
        return compiled

    @functools.cache  # noqa: B019 - there is one instance a section
    def rules(self, name: str) -> tuple[re.Pattern[str], ...]:
        """Return a list of expressions with the same meaning in several wordings."""
        return tuple(re.compile(self._expanded(text)) for text in self._section[name])

    @functools.cache  # noqa: B019
    def named(self, name: str) -> Mapping[str, re.Pattern[str]]:
        """Return a table of expressions by the names of their meanings."""
        return {key: re.compile(self._expanded(text)) for key, text in self._section[name].items()}

    def _expanded(self, text: str) -> str:
        return _MACRO.sub(lambda match: self._macro(match[1]), text)

    def _macro(self, name: str) -> str:
        if name in {"person", "number"}:
            return PERSON if name == "person" else dates.NUMBER
        stated = self._section.get(name, _PATTERNS["common"].get(name))
        if stated is None:
            return "|".join(sorted(dict.fromkeys(listed(name)), key=len, reverse=True))
        return self._expanded("|".join(stated.values()) if isinstance(stated, dict) else stated)


_WORDING = Patterns("wording")
_TENS = listed("tens")


def plain(text: str) -> str:
    """Return a text with straight apostrophes, without marks of emphasis, and with its contractions written out."""
    bare = _LONG_WORD.sub("…", text[:_LONGEST_PASSAGE])
    bare = bare.replace("’", "'").replace("*", "").replace("_", " ").replace("‘", "'")
    for full, pattern in _WORDING.named("contractions").items():
        bare = pattern.sub(full, bare)
    return " ".join(_WORDING.score.sub(_counted, _WORDING.turned.sub(r"\2-\1", bare)).split())


def _counted(match: re.Match[str]) -> str:
    tens, more = _SCORES[match[1].lower()], (match[2] or "").lower()
    return _TENS[_TENS.index(tens) + 1] if more == "ten" else f"{tens}-{more}" if more else tens


def with_subject(text: str, name: str, is_person: bool) -> str:
    """Return a sentence of a card with its subject: `Stands on the left bank` and `It is on …` name it."""
    if text.startswith("It ") and not is_person:
        return f"{name} {text[3:]}"
    verb = text.split(" ", 1)[0]
    if verb.lower() in words("passive"):
        return f"{name} was {verb.lower()}{text[len(verb) :]}"
    return f"{name} {verb.lower()}{text[len(verb) :]}" if verb in words("finite") else text
