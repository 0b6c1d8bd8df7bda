"""Names: find the proper names in prose, and those that look like a misspelling of another one."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from app.tools import bounds
from app.tools.story import documents, matching, prose
from app.tools.story.canon import Entity

_CAPITALISED = re.compile(r"(?<!\w)[^\W\d_a-z]\w{0,30}(?:-\w{1,30})?(?: [^\W\d_a-z]\w{1,30}){0,3}")
_SENTENCE_OPENS = re.compile(r"(?:^|[.!?…:]|[\"“”«»])[\"“”«»'’)\s*_]{0,4}$")
_TITLES = frozenset({
    "Mr", "Mrs", "Ms", "Dr", "Captain", "Lady", "Lord", "Sir", "Madam", "Father", "Mother", "King", "Queen", "God",
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "I", "Scene", "Chapter",
})  # fmt: skip
_OPENERS = frozenset(
    "later then when after before once now still even only perhaps maybe poor old young dear yes no but and so if "
    "because since while until though although what who why how where which both neither either every each all "
    "some any this that these those here there today tomorrow yesterday tonight meanwhile instead besides anyway "
    "again always never often sometimes soon suddenly next last first finally at in on by for from with without "
    "under over between behind beside near inside outside across through during like unlike as than their his her "
    "its our your my whose whatever nobody somebody everybody everyone someone ask tell let see look come go give "
    "take is was were are do does did have had has can could will would shall should may might must not one two "
    "three four five six seven eight nine ten good big little great grand called born".split()
)
_MAX_NAMES = 600
_SHORTEST_COMPARED = 4
_LONG_NAME = 8
_OFTEN = 3
_ADDRESSES = frozenset({"Miss", "Mister", "Missis"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A proper name at one place of a text."""

    name: str  # As it is written, without a possessive `'s`.
    path: str  # File.
    line: int  # Line in it.
    quote: str  # The sentence.
    opens: bool  # Whether it opens a sentence, and so has a capital in any case.
    has_article: bool  # Whether `the` precedes it.
    is_certain: bool = False  # Whether it is certainly a name: it also occurs where only names have capitals.


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """A name that is probably another one misspelt."""

    name: str  # The written form.
    intended: str  # The form probably intended.
    sighting: Sighting  # The first place where it is written.
    count: int  # How often it is written in this form.
    intended_count: int  # How often the other form is written.


def sightings(texts: Iterable[documents.Document]) -> list[Sighting]:
    """Return all proper names in order, and possible ones that open a sentence and are never lower case."""
    seen: list[Sighting] = []
    small: set[str] = set(matching.STOPWORDS)
    for document in texts:
        for paragraph in prose.paragraphs(document):
            small.update(word for word in prose.words(paragraph.text) if word[0].islower())
            seen.extend(_in_paragraph(paragraph, document.path))
    sure = {sighting.name for sighting in seen if not sighting.opens}
    sure |= {sighting.name for sighting in seen if sighting.opens and _has_surname(sighting.name, small)}
    kept = (_without_opening(sighting, sure) for sighting in seen)
    return [
        dataclasses.replace(sighting, is_certain=sighting.name in sure)
        for sighting in kept
        if sighting.name.lower() not in small and sighting.name not in _TITLES
    ]


def certain(seen: Iterable[Sighting]) -> list[Sighting]:
    """Return the certain names."""
    return [sighting for sighting in seen if sighting.is_certain]


def entities(seen: Sequence[Sighting]) -> list[Entity]:
    """Return the frequent names as members of a cast without further facts."""
    counts = Counter(sighting.name for sighting in certain(seen))
    with_article = Counter(sighting.name for sighting in certain(seen) if sighting.has_article)
    frequent = sorted(counts, key=lambda name: (-counts[name], name))[:_MAX_NAMES]
    return [
        Entity(
            name=name,
            aliases=(name,),
            kind="thing" if 2 * with_article[name] > counts[name] else "unknown",
            pronoun=None,
            facts=(),
            document=None,
        )
        for name in frequent
    ]


def slips(seen: Sequence[Sighting], known: Iterable[str]) -> list[Slip]:
    """Return names that are one or two letters away from a known or a more frequent one."""
    first: dict[str, Sighting] = {}
    counts: Counter[str] = Counter()
    sure: set[str] = set()
    for sighting in seen:
        for word in sighting.name.split():
            counts[word] += 1
            first.setdefault(word, sighting)
            sure.update([word] if sighting.is_certain else [])
    right = {word for name in known for word in name.split() if word[:1].isupper()}
    doubtful = [word for word in sorted(counts) if word not in right and len(word) >= _SHORTEST_COMPARED][:_MAX_NAMES]
    candidates = sorted(right | {word for word in sure if counts[word] > 1})[:_MAX_NAMES]
    found = []
    for word in doubtful:
        distinct = set(prose.words(first[word].quote)) | _ADDRESSES if counts[word] < _OFTEN else _ADDRESSES
        near = [o for o in candidates if _is_slip(word, o, counts, right) and o not in distinct]
        if word not in sure:
            # `Dark fell.` is not a typo for Mark, `Brahm waved.` may be one for Bram.
            near = [other for other in near if other[0] == word[0] and len(word) > _SHORTEST_COMPARED]
        if near:
            intended = min(near, key=lambda other: (distance(word, other), -counts[other], other))
            slip = Slip(
                name=word, intended=intended, sighting=first[word], count=counts[word], intended_count=counts[intended]
            )
            found.append(slip)
    return found


def _in_paragraph(paragraph: prose.Paragraph, path: str) -> Iterator[Sighting]:
    for match in _CAPITALISED.finditer(paragraph.text):
        name, before = match[0], paragraph.text[max(match.start() - 6, 0) : match.start()]
        if not all(word[0].isupper() for word in name.split()):
            continue
        has_article = bool(re.search(r"\b[Tt]he $", before))
        if name.startswith("The ") and len(name) > 4:
            name, has_article = name[4:], True
        yield Sighting(
            name=name,
            path=path,
            line=paragraph.line_at(match.start()),
            quote=bounds.clipped(paragraph.sentence_at(match.start()).text),
            opens=not has_article and bool(_SENTENCE_OPENS.search(before)),
            has_article=has_article,
        )


def _has_surname(name: str, small: Set[str]) -> bool:
    """Return whether the second word of a name that opens a sentence proves that it is a name."""
    first, _, rest = name.partition(" ")
    return bool(rest) and first.lower() not in small | _OPENERS and not first.lower().endswith(("ly", "ing", "ed"))


def _without_opening(sighting: Sighting, sure: Set[str]) -> Sighting:
    """Remove the first word of `Then Kael`, which opens a sentence and is not part of the name."""
    tail = sighting.name.partition(" ")[2]
    if sighting.opens and sighting.name not in sure and tail in sure:
        return dataclasses.replace(sighting, name=tail, opens=False)
    return sighting


def _is_slip(word: str, other: str, counts: Mapping[str, int], right: Set[str]) -> bool:
    if word == other or abs(len(word) - len(other)) > 1 or len(other) < _SHORTEST_COMPARED:
        return False
    if other not in right and (counts[other] < 2 * counts[word] or word[0] != other[0]):
        return False
    if word.rstrip("s") == other.rstrip("s"):
        return False
    return distance(word, other) <= (2 if min(len(word), len(other)) >= _LONG_NAME else 1)


def distance(one: str, other: str) -> int:
    """Return the number of letters to insert, drop, change or swap with a neighbour."""
    # The optimal string alignment distance, computed with the two rows above the present one.
    before: list[int] = []
    above = list(range(len(other) + 1))
    for i, a in enumerate(one):
        row = [i + 1]
        for j, b in enumerate(other):
            steps = [above[j + 1] + 1, row[j] + 1, above[j] + (a != b)]
            if i and j and a == other[j - 1] and one[i - 1] == b:
                steps.append(before[j - 1] + 1)
            row.append(min(steps))
        before, above = above, row
    return above[-1]
