"""Measures of prose: lengths, adverbs, passive voice, repetitions, dialogue, readability and pace."""

from __future__ import annotations

import itertools
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.domain import plain
from app.tools import bounds
from app.tools.bounds import mean, share
from app.tools.story import matching, prose
from app.tools.story.prose import Paragraph, Sentence

_ITEMS_SHOWN = 40

_MONOTONE_RUN = 3

_NEAR_WORDS = 60

_SLOW_WORDS, _FAST_WORDS = 18.0, 9.0

_NO_ADVERBS = frozenset(
    "only family early likely lonely lovely friendly holy ugly silly jelly belly bully fly reply supply "
    "apply july italy ally rely lily curly deadly daily weekly elderly costly ghastly homely kindly lively "
    "orderly timely worldly bodily assembly butterfly anomaly melancholy sly ply wooly wobbly".split()
)

_PARTICIPLES = (
    "born broken brought built burnt bought caught chosen cut done drawn driven eaten fallen felt found forbidden "
    "forgotten forgiven given grown held heard hidden hit hurt kept known laid led left lent lit lost made meant met "
    "paid put read ridden rung said seen sent set shown shut slain sold spent spoken stolen struck sung sunk sworn "
    "taken taught thrown told torn understood woken won worn woven written"
).replace(" ", "|")

_PASSIVE = re.compile(
    rf"\b(?:am|is|are|was|were|be|been|being|got)\s(?:(?:not|never|already|still|also|being|been|\w{{2,12}}ly)\s){{0,2}}"
    rf"(?:\w{{2,20}}[^e\W]ed|{_PARTICIPLES})\b(?!\s(?:of|to be|at)\b)",
    re.IGNORECASE,
)

_NOT_PASSIVE = frozenset("afraid ashamed tired used supposed scared interested excited worried red need".split())

# Words that readers do not notice.
_UNNOTICED = matching.STOPWORDS | {"said", "asked", "says", "asks"}

_VOWELS = re.compile(r"[aeiouy]{1,8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The prose of a scene, with its counts."""

    path: str  # File.
    paragraphs: Sequence[Paragraph]  # Its paragraphs.
    sentences: Sequence[Sentence]  # Their sentences.
    words: Sequence[str]  # All words in order.
    lengths: Sequence[int]  # Words of each sentence.


def of_paragraphs(path: str, paragraphs: Sequence[Paragraph]) -> Text:
    """Count the sentences and words of paragraphs."""
    sentences = [sentence for paragraph in paragraphs for sentence in paragraph.sentences]
    by_sentence = [prose.words(sentence.text) for sentence in sentences]
    return Text(
        path=path,
        paragraphs=paragraphs,
        sentences=sentences,
        words=[word for words in by_sentence for word in words],
        lengths=[len(words) for words in by_sentence if words],
    )


def measured(text: Text) -> dict[str, plain.Json]:
    """Return all measures as plain JSON."""
    adverbs = list(_adverbs(text))
    passive = list(_passive(text))
    return {
        "sentence_length": _lengths(text.lengths),
        "adverbs": {
            "count": len(adverbs),
            "per_1000": round(1000 * len(adverbs) / max(len(text.words), 1), 1),
            "items": adverbs[:_ITEMS_SHOWN],
        },
        "passive": {
            "count": len(passive),
            "share": share(len(passive), len(text.sentences)),
            "items": passive[:_ITEMS_SHOWN],
        },
        "repeated_words": _repeated_words(text),
        "repeated_openings": _repeated_openings(text),
        "dialogue": _dialogue(text),
        "readability": _readability(text),
        "pacing": [_pace(paragraph) for paragraph in text.paragraphs],
    }


def _lengths(lengths: Sequence[int]) -> dict[str, plain.Json]:
    return {
        "mean": round(mean(lengths), 1),
        "median": statistics.median(lengths) if lengths else 0,
        "shortest": min(lengths, default=0),
        "longest": max(lengths, default=0),
        "deviation": round(statistics.pstdev(lengths), 1) if lengths else 0.0,
    }


def _adverbs(text: Text) -> Iterator[dict[str, plain.Json]]:
    for sentence in text.sentences:
        for word in prose.words(sentence.text):
            if word.lower().endswith("ly") and len(word) > 3 and word.lower() not in _NO_ADVERBS and word[0].islower():
                yield {"word": word, "line": sentence.line, "quote": bounds.clipped(sentence.text, 120)}


def _passive(text: Text) -> Iterator[dict[str, plain.Json]]:
    for sentence in text.sentences:
        match = _PASSIVE.search(sentence.text)
        if match and match[0].split()[-1].lower() not in _NOT_PASSIVE:
            yield {"words": match[0], "line": sentence.line, "quote": bounds.clipped(sentence.text, 120)}


def _repeated_words(text: Text) -> list[dict[str, plain.Json]]:
    places: dict[str, list[tuple[int, int]]] = {}
    position = 0
    for sentence in text.sentences:
        for word in prose.words(sentence.text):
            position += 1
            if word[0].islower() and len(word) > 3 and word not in _UNNOTICED:
                places.setdefault(word.lower(), []).append((position, sentence.line))
    found = []
    for word, seen in places.items():
        near = sum(b[0] - a[0] <= _NEAR_WORDS for a, b in itertools.pairwise(seen))
        if near >= 2 and len(seen) >= 3:
            lines = list(dict.fromkeys(line for _, line in seen))
            found.append((-len(seen), word, lines[:_ITEMS_SHOWN]))
    return [{"word": word, "count": -rank, "lines": lines} for rank, word, lines in sorted(found)[:_ITEMS_SHOWN]]


def _repeated_openings(text: Text) -> list[dict[str, plain.Json]]:
    openings = [(words[0].lower(), s.line) for s in text.sentences if (words := prose.words(s.text))]
    runs = (list(run) for _, run in itertools.groupby(openings, key=lambda opening: opening[0]))
    long = [run for run in runs if len(run) >= _MONOTONE_RUN]
    return [
        {"opening": run[0][0], "count": len(run), "lines": [line for _, line in run[:_ITEMS_SHOWN]]} for run in long
    ]


def _dialogue(text: Text) -> dict[str, plain.Json]:
    spoken = sum(span.end - span.start for paragraph in text.paragraphs for span in paragraph.speech)
    lines = sum(bool(paragraph.speech) for paragraph in text.paragraphs)
    return {"share": share(spoken, sum(len(paragraph.text) for paragraph in text.paragraphs)), "lines": lines}


def _readability(text: Text) -> dict[str, plain.Json]:
    words = len(text.words)
    if not words:
        return {"flesch_reading_ease": None, "grade_level": None}
    per_sentence = words / max(len(text.sentences), 1)
    counts = Counter(text.words)
    per_word = sum(_syllables(word) * count for word, count in counts.items()) / words
    return {
        "flesch_reading_ease": round(206.835 - 1.015 * per_sentence - 84.6 * per_word, 1),
        "grade_level": round(0.39 * per_sentence + 11.8 * per_word - 15.59, 1),
    }


def _syllables(word: str) -> int:
    groups = len(_VOWELS.findall(word.lower()))
    silent = word.lower().endswith("e") and not word.lower().endswith(("le", "ee")) and groups > 1
    return max(groups - silent, 1)


def _pace(paragraph: Paragraph) -> dict[str, plain.Json]:
    lengths = [len(prose.words(sentence.text)) for sentence in paragraph.sentences]
    length = mean(lengths)
    spoken = prose.spoken_share(paragraph)
    pace = "fast" if length <= _FAST_WORDS else "slow" if length >= _SLOW_WORDS and spoken < 0.5 else "steady"
    return {
        "paragraph": paragraph.index + 1,
        "line": paragraph.line,
        "words": sum(lengths),
        "mean_sentence_words": round(length, 1),
        "dialogue_share": round(spoken, 3),
        "pace": pace,
    }
