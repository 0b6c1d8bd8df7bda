"""Quotes: whether a text contains the words of a quote, in any formatting.

White space, marks of emphasis, the shape of quotation marks, hyphens that only break a line, and the encoding of
accented letters are formatting; all else belongs to the words.
"""

# A byte-by-byte search rejects honest quotes at line ends and typographic apostrophes; a tolerant one accepts
# forged quotes. A quote therefore begins and ends at word boundaries, and does not end before the rest of a contraction
# or number.

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_CHUNK_CHARACTERS = 64 * 1024
_MOST_PLACES = 10_000
_UNSEEN = dict.fromkeys((0x00AD, 0x200B, 0x2060, 0xFEFF))
"""Invisible hyphens, breaks and joints. Characters that reverse the order of letters are not among them."""
_SHAPES = _UNSEEN | str.maketrans("“”„‟‘’‚‛‐‑", '""""' + "''''" + "--")
_EMPHASIS = re.compile(r"(?<![\w*`])[*_`]++(?=\S)|(?<=[^\s*_`])[*_`]++(?![^\W_])")
_UNSPACED = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u2e80-\u312f\u3190-\ua4cf\uaa60-\uaadf\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff]"
)
"""Letters of scripts that put no spaces between words."""


def holds(text: str, quote: str) -> bool:
    """Return whether a text contains the words of a quote, from the beginning of a word to the end of one."""
    wanted, known = _folded(quote), _folded(text)
    return bool(wanted) and any(_apart(known, place, place + len(wanted)) for place in _places(known, wanted))


def beginning(text: str, quote: str) -> str:
    """Return the longest beginning of a quote, in whole words, that is in the text; the words after it were changed."""
    known, words, shown = _folded(text), _folded(quote).split(), quote.translate(_UNSEEN).split()
    least, most = 0, len(words)
    # If a beginning of the quote is in the text, so is every shorter one; this allows a binary search.
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if " ".join(words[:middle]) in known else (least, middle - 1)
    return " ".join(shown[:least])


def _folded(text: str) -> str:
    # In pieces, so that a large file does not hold the interpreter lock for long.
    pieces = (text[begin : begin + _CHUNK_CHARACTERS] for begin in range(0, len(text), _CHUNK_CHARACTERS))
    shaped = (piece if piece.isascii() else piece.translate(_SHAPES) for piece in pieces)
    return " ".join(_plain(" ".join(words)) for words in _words(shaped) if words)


def _words(pieces: Iterator[str]) -> Iterator[list[str]]:
    cut: list[str] = []
    for piece in pieces:
        words = piece.split()
        if cut and words and not piece[0].isspace():
            cut.append(words.pop(0))
        if cut and (words or piece[-1:].isspace()):
            words.insert(0, "".join(cut))
            cut = []
        if words and not piece[-1].isspace():
            cut = [words.pop()]
        yield words
    yield ["".join(cut)] if cut else []


def _plain(words: str) -> str:
    return _EMPHASIS.sub("", words if words.isascii() else unicodedata.normalize("NFC", words))


def _places(text: str, wanted: str) -> Iterator[int]:
    place = -1
    for _ in range(_MOST_PLACES):
        place = text.find(wanted, place + 1)
        if place < 0:
            return
        yield place


def _apart(text: str, begin: int, end: int) -> bool:
    before, first = text[max(begin - 2, 0) : begin], text[begin]
    last, after = text[end - 1], text[end : end + 2]
    within = (
        _joined(before[-1:], first),
        _joined(last, after[:1]),
        _in_number(before + first),
        _in_number(last + after),
        last.isalnum() and after[:1] == "'" and after[1:].isalnum(),
    )
    return not any(within)


def _joined(left: str, right: str) -> bool:
    if left and right and unicodedata.category(right).startswith("M"):
        return not left.isspace()
    return left.isalnum() and right.isalnum() and not (_UNSPACED.match(left) or _UNSPACED.match(right))


def _in_number(three: str) -> bool:
    return len(three) == 3 and three[0].isdecimal() and three[1] in ".," and three[2].isdecimal()
