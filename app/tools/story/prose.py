"""Prose: split a text into paragraphs, sentences, words and direct speech, each with its line in the file."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.tools.story import documents

# Every quantifier is bounded: a file is hostile input, and a run of a million dots must cost linear time.
_ENDING = re.compile(r"[.!?…]{1,8}[\"'”’»)\]*_]{0,4}(?=\s)")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?(?:-[^\W\d_]+)?")
_PARAGRAPH_CHARACTERS = 10_000
_TITLES = frozenset(
    {"mr", "mrs", "ms", "dr", "st", "capt", "lt", "col", "gen", "sgt", "prof", "rev", "no", "vs", "etc"}
)
_OPENING = {"“": "”", "«": "»", "„": "“", '"': '"'}
_OPENERS = re.compile('[“«„"]')
_SINGLE_OPENS = re.compile(r"(?:^|(?<=[\s(—–]))['‘](?=[A-Z…])")
_SINGLE_CLOSES = re.compile(r"(?<=[.,!?…—–])['’](?=$|[\s)—–])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of a paragraph's text."""

    start: int  # First character.
    end: int  # One past the last.


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence of a paragraph."""

    text: str  # Its text on one line.
    start: int  # Where it begins in the paragraph's text.
    end: int  # One past its last character there.
    line: int  # Line of the file on which it begins.


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A paragraph on one line, with the positions of its parts in the file."""

    index: int  # Position among the paragraphs, from 0.
    text: str  # Its lines joined with blanks.
    line: int  # Line of the file on which it begins.
    line_starts: tuple[int, ...]  # Position in the text at which each of its lines begins.
    sentences: tuple[Sentence, ...]  # Its sentences.
    speech: tuple[Span, ...]  # Its direct speech, quotation marks included.

    def line_at(self, position: int) -> int:
        """Return the line of the file that contains a character of the text."""
        return self.line + bisect.bisect_right(self.line_starts, position) - 1

    def is_spoken(self, position: int) -> bool:
        """Return whether a character of the text is in direct speech."""
        index = bisect.bisect_right(self.speech, position, key=lambda span: span.start) - 1
        return index >= 0 and position < self.speech[index].end

    def sentence_at(self, position: int) -> Sentence:
        """Return the sentence that contains a character of the text."""
        index = bisect.bisect_right(self.sentences, position, key=lambda sentence: sentence.start) - 1
        return self.sentences[max(index, 0)]


def paragraphs(document: documents.Document) -> list[Paragraph]:
    """Return the paragraphs of a document's body that contain words."""
    texts = [block for block in documents.blocks(document) if any(_WORD.search(line) for line in block.lines)]
    parts = ((part, line) for block in texts for part, line in _parts(block.lines, block.line))
    return [_paragraph(index, lines, line) for index, (lines, line) in enumerate(parts)]


def words(text: str) -> list[str]:
    """Return the words of a text as they are written, without figures."""
    return _WORD.findall(text)


def spoken_share(paragraph: Paragraph) -> float:
    """Return the part of a paragraph's characters that is direct speech, 0 to 1."""
    return sum(span.end - span.start for span in paragraph.speech) / max(len(paragraph.text), 1)


def _parts(lines: Sequence[str], line: int) -> Iterator[tuple[Sequence[str], int]]:
    """Cut an overlong paragraph into pieces, to bound the work within a paragraph."""
    gathered: list[str] = []
    first, characters = line, 0
    for place, text in enumerate(lines, start=line):
        for start in range(0, max(len(text), 1), _PARAGRAPH_CHARACTERS):
            piece = text[start : start + _PARAGRAPH_CHARACTERS]
            if gathered and (start or characters + len(piece) > _PARAGRAPH_CHARACTERS):
                yield gathered, first
                gathered, characters = [], 0
            first = first if gathered else place
            gathered.append(piece)
            characters += len(piece)
    yield gathered, first


def _paragraph(index: int, lines: Sequence[str], line: int) -> Paragraph:
    starts, position = [], 0
    for text in lines:
        starts.append(position)
        position += len(text) + 1
    joined = " ".join(lines)
    return Paragraph(
        index=index,
        text=joined,
        line=line,
        line_starts=tuple(starts),
        sentences=_sentences(joined, starts, line),
        speech=_speech(joined),
    )


def _sentences(text: str, line_starts: Sequence[int], line: int) -> tuple[Sentence, ...]:
    ends = [match.end() for match in _ENDING.finditer(text) if _closes(text, match)]
    found, start = [], 0
    for end in [*ends, len(text)]:
        bare = text[start:end].strip()
        if _WORD.search(bare):
            first = start + len(text[start:end]) - len(text[start:end].lstrip())
            place = line + bisect.bisect_right(line_starts, first) - 1
            found.append(Sentence(text=bare, start=first, end=first + len(bare), line=place))
        start = end
    return tuple(found) or (Sentence(text=text, start=0, end=len(text), line=line),)


def _closes(text: str, match: re.Match[str]) -> bool:
    """Decide whether a mark ends its sentence: not after `Mr.` or an initial, nor before a small letter."""
    following = text[match.end() : match.end() + 4].lstrip()[:1]
    if following.islower():
        return False
    if not match[0].startswith(".") or len(match[0]) > 1:
        return True
    before = text[max(match.start() - 6, 0) : match.start()]
    last = re.split(r"[\W\d_]", before)[-1]
    return last.lower() not in _TITLES and not (len(last) == 1 and last.isupper() and last != "I")


def _speech(text: str) -> tuple[Span, ...]:
    """Pair the quotation marks; by printers' convention, unclosed speech runs to the end of its paragraph."""
    spans, position = [], 0
    while (opening := _OPENERS.search(text, position)) is not None:
        closing = text.find(_OPENING[opening[0]], opening.end())
        position = len(text) if closing < 0 else closing + 1
        spans.append(Span(start=opening.start(), end=position))
    return tuple(spans) or _single_quoted(text)


def _single_quoted(text: str) -> tuple[Span, ...]:
    """Pair single quotation marks; one closes speech only after a punctuation mark, so that `don't` does not."""
    spans, position = [], 0
    while (opening := _SINGLE_OPENS.search(text, position)) is not None:
        closing = _SINGLE_CLOSES.search(text, opening.end())
        if closing is None:
            break
        position = closing.end()
        spans.append(Span(start=opening.end() - 1, end=position))
    return tuple(spans)
