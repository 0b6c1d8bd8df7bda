"""Degenerate replies: detect replies that only echo the prompt, or repeat themselves without end.

Legitimate replies pass: short words, lists and tables with equal lines, code, refrains, an answer that the
instructions prescribe word by word, a text that is returned unchanged. The time grows linearly with the length.
"""

# Many sound replies are parts of their prompt: a draft returned unchanged, a sentence that the instructions prescribe,
# a quotation. So a reply echoes the role or the instructions only if it has their opening and little else, and it
# echoes the whole prompt only if it contains all of it and adds no words.

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.domain import plain

_TAIL_CHARACTERS = 20_000
_ECHO_CHARACTERS = 100_000
_BLANKS = re.compile(r"[^\S\n]+")
_WORD = re.compile(r"\w+")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
# Lines of lists, tables, quotations, markup and code, which may legitimately be equal.
_BEGINS_STRUCTURED = re.compile(r"\s*(?:[-+*•|>#<\[({]|\d+[.):]|[^\s:][^:\n]{0,40}:\s)")
_ENDS_STRUCTURED = re.compile(r"[;{}\])|,:]\s*\Z|\w\(|=")
_LETTERS = re.compile(r"[^\W\d_]")

_OPENING_WORDS, _SHINGLE_WORDS, _LEAST_ECHO_WORDS = 4, 6, 12
_FILLERS = frozenset("sure ok okay yes certainly as you are the a an".split())
_SPEAKERS = {"i": "you", "im": "you", "am": "are", "m": "are", "re": "are", "my": "your", "me": "you", "mine": "yours"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The prompt as an agent received it."""

    system: str = ""  # Role contract, or other standing instruction.
    prompt: str = ""  # The whole prompt.
    instructions: str = ""  # The recipe's text of the prompt, without the values filled in; empty if unknown.


@dataclass(frozen=True, slots=True, kw_only=True)
class Degenerate:
    """A fault of a reply."""

    message: str  # One sentence for the user.
    facts: plain.Object  # Facts for machines.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    unit: str  # The repeated text.
    times: int  # Number of repetitions.
    characters: int  # Total length of all repetitions.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """Limits of repetition: too often and too long together, or far too often, in a large enough share of the reply."""

    times: int
    characters: int
    many_times: int
    share: float


# A reply that was cut off is still in its loop; a reply that ended by itself may contain the repetitions on purpose.
_PROSE = _Bound(times=6, characters=300, many_times=25, share=0.5)
_CUT_PROSE = _Bound(times=6, characters=160, many_times=15, share=0.2)
_LINES = _Bound(times=40, characters=4_000, many_times=1_000, share=0.5)
_CUT_LINES = _Bound(times=12, characters=600, many_times=100, share=0.2)
_CUT_NUMBERS = _Bound(times=40, characters=2_000, many_times=1_000, share=0.5)
_LEAST_CHARACTERS = 100


def find(reply: str, requested: Asked, *, cut_off: bool = False) -> Degenerate | None:
    """Return what makes a reply degenerate; None for a sound one."""
    echoed = _echoed(reply, requested)
    # Check for an echo first: the echo of a prompt that repeats itself would otherwise be reported as a loop.
    if echoed is not None:
        return Degenerate(message=f"The reply only echoes {echoed}.", facts={"echoes": echoed})
    loop = _endless(reply, cut_off)
    if loop is None:
        return None
    shown = plain.preview(loop.unit.strip() or loop.unit)
    facts: dict[str, plain.Json] = {"repeats": shown, "times": loop.times, "characters": loop.characters}
    return Degenerate(message=f"The reply repeats itself without end, {loop.times} times: {shown}", facts=facts)


# -- echoes


def _echoed(reply: str, requested: Asked) -> str | None:
    if len(reply) > _ECHO_CHARACTERS:
        # An echo of this length is a loop, if it is degenerate at all.
        return None
    reply_text = _spoken(reply)
    for what, reported, is_own in (
        ("its role", requested.system, True),
        ("its instructions", requested.instructions, True),
        ("its prompt", requested.prompt, False),
        # Programs without a standing instruction get the role before the prompt, and may echo both.
        ("its role and prompt", f"{requested.system}\n{requested.prompt}", False),
    ):
        if reported and len(reported) <= _ECHO_CHARACTERS and _echoes(reply_text, _spoken(reported), is_own=is_own):
            return what
    return None


def _spoken(text: str) -> list[str]:
    words = (_SPEAKERS.get(word, word) for word in _WORD.findall(text.casefold()))
    return list(itertools.dropwhile(_FILLERS.__contains__, words))


def _echoes(reply_text: Sequence[str], reported: Sequence[str], *, is_own: bool) -> bool:
    """Return whether the words of a reply only echo those of another text."""
    least = _OPENING_WORDS + 1 if is_own else len(reported)
    if len(reported) <= _OPENING_WORDS or len(reply_text) < least:
        return False
    if all(word == other for word, other in zip(reply_text, itertools.cycle(reported), strict=False)):
        return True
    return is_own and len(reply_text) >= _LEAST_ECHO_WORDS and _is_patchwork(reply_text, reported)


def _is_patchwork(reply_text: Sequence[str], reported: Sequence[str]) -> bool:
    # A sentence that the instructions prescribe is a part of them, too; it lacks their opening, or most of their words.
    ours, theirs = list(_shingles(reply_text, _SHINGLE_WORDS)), list(_shingles(reported, _SHINGLE_WORDS))
    known, used = set(theirs), set(ours)
    taken = sum(shingle in known for shingle in ours)
    covered = sum(shingle in used for shingle in theirs)
    begins = tuple(reported[:_OPENING_WORDS]) in set(_shingles(reply_text, _OPENING_WORDS))
    return begins and taken >= 0.8 * len(ours) and covered >= 0.5 * len(theirs)


def _shingles(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(size)), strict=False)


# -- repetitions


def _endless(reply: str, cut_off: bool) -> _Loop | None:
    text = _BLANKS.sub(" ", reply.casefold()).strip()
    # A complete JSON document of equal entries may be exactly what the prompt requested.
    if len(text) < _LEAST_CHARACTERS or (not cut_off and _is_json(text)):
        return None
    if _WORD.search(text) is None:
        # A text without a letter or digit has no words to compare; its characters are the loop.
        return _Loop(unit=text[:1], times=len(text), characters=len(text))
    # A reply may have one more line after its loop.
    for end in dict.fromkeys((len(text), max(text.rfind("\n"), text.rfind(". ") + 1, 0))):
        loop = _loop_at_end(text[:end])
        if loop is not None and _is_endless(loop, text, end, cut_off):
            return loop
    return None


def _loop_at_end(text: str) -> _Loop | None:
    tail = text[-_TAIL_CHARACTERS:][::-1]
    # The failure function of Knuth, Morris and Pratt over the reversed end: how much of each beginning repeats.
    borders = [0] * len(tail)
    border, best = 0, (0, 0)
    for index in range(1, len(tail)):
        while border and tail[index] != tail[border]:
            border = borders[border - 1]
        border += tail[index] == tail[border]
        borders[index] = border
        span, period = index + 1, index + 1 - border
        if span >= _CUT_PROSE.times * period and span > best[0]:
            best = (span, period)
    span, period = best
    if not span:
        return None
    if span == len(tail):
        # The loop may begin before the part that was examined.
        span = _extended(text, span, period)
    return _Loop(unit=text[-period:] if period else "", times=span // period, characters=span)


def _extended(text: str, span: int, period: int) -> int:
    step = max(period, _TAIL_CHARACTERS)
    while span < len(text):
        size = min(step, len(text) - span)
        start = len(text) - span - size
        # Compared in pieces, which are halved if they differ: a loop of megabytes takes a few comparisons.
        if text[start : start + size] != text[start + period : start + period + size]:
            if size == 1:
                break
            step = size // 2
            continue
        span += size
    return span


def _is_endless(loop: _Loop, text: str, end: int, cut_off: bool) -> bool:
    bound = _bound(loop, text[: max(end - loop.characters, 0)], cut_off)
    if bound is None or loop.characters < bound.share * len(text):
        return False
    often = loop.times >= bound.times and loop.characters >= bound.characters
    return often or (loop.times >= bound.many_times and loop.characters >= _LEAST_CHARACTERS)


def _bound(loop: _Loop, before: str, cut_off: bool) -> _Bound | None:
    if not _LETTERS.search(loop.unit):
        return _CUT_NUMBERS if cut_off else None
    if _is_structured(loop.unit) or len(_FENCE.findall(before)) % 2:
        return _CUT_LINES if cut_off else _LINES
    return _CUT_PROSE if cut_off else _PROSE


def _is_structured(unit: str) -> bool:
    if "\n" not in unit:
        return _is_structured_line(unit)
    # If the unit begins within a line, its last and first pieces form one line.
    first, *lines, last = unit.split("\n")
    lines = [line for line in (*lines, last + first) if line.strip()]
    return sum(map(_is_structured_line, lines)) * 2 > len(lines)


def _is_structured_line(line: str) -> bool:
    return _BEGINS_STRUCTURED.match(line) is not None or _ENDS_STRUCTURED.search(line) is not None


def _is_json(text: str) -> bool:
    if text[0] not in "{[" or text[-1] not in "}]":
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
