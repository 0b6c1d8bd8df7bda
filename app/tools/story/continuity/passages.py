"""Passages: sentences in which names and pronouns have been replaced by whom they mean.

`She gave Kael her ring` becomes `@2 gave @1 @2's ring`, so that what is read off a passage needs no grammar of names.
"""

# Why: docs/decisions/0244.

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.tools import bounds
from app.tools.story import dates, documents, prose
from app.tools.story.cast import Mention
from app.tools.story.continuity import vocabulary, wording
from app.tools.story.continuity.coreference import UNNAMED, Chain, described, unnamed_gender
from app.tools.story.continuity.roster import Roster

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_PRONOUNS = {
    "he": "he", "him": "he", "himself": "he", "his": "he", "she": "she", "hers": "she", "her": "she", "herself": "she",
    "i": "i", "me": "i", "my": "i", "mine": "i", "myself": "i",
}  # fmt: skip
_POSSESSIVE = frozenset({"his", "her", "hers", "my", "mine"})
_AFTER_OBJECT = frozenset(
    "the a an to in on at of for with from by and or but as that when while until till if because so then into onto "
    "over under up down out off away back again about after before across along around beside behind between through "
    "toward towards without within was were is are had has have would could should might not what who how why where "
    "this these those nothing something anything everything more now here there too either for alone once".split()
)
_SUBJECT_IS = re.compile(r"@[?~]?(\d+)(?:,? (?:is|was|had been|being|only|just|not))+ $")
_FIRST_PERSON = re.compile(r"\b(?:I|my|me)\b")
_OFTEN = 3
_KIN = re.compile(
    r" (?:(?:elder|older|younger|late|own|old|dear|poor|little|big|only|dead|twin|young|good) )*"
    rf"(?P<k>{'|'.join(sorted(vocabulary.KINSHIP, key=len, reverse=True))})\b(?!-)(?P<s>['’]s\b)?(?!,? (?:\w+, )?[A-Z])"
)
_DISLOCATED = re.compile(r"^(@[~?]\d+)(?= [^@.;]{3,60}, (?:poor |old |dear |was |our )+@(\d+)[,.])")
_SAID = re.compile(rf"\b(?:{vocabulary.SPEECH_VERBS}) (?:(?:the|old|young) )?@[?~]?(\d+)\b(?!'s)")
_SAYS = re.compile(rf"@[?~]?(\d+)(?:,? \w{{2,12}}ly)? (?:{vocabulary.SPEECH_VERBS})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A sentence, or the part of one that is spoken or not."""

    text: str
    """Its words with `@n` for the cast."""
    path: str
    """File."""
    line: int
    """Line of the file."""
    quote: str
    """The sentence as it stands in the file."""
    context: str
    """The paragraph and its neighbours, in small letters."""
    order: int
    """Place of its file in the telling; -1 for a card."""
    index: int
    """Place of the passage in its file."""
    date: dates.StoryDate | None = None
    """When its scene plays."""
    number: int | None = None
    """Number of its scene."""
    is_alone: bool = False
    """Whether no other scene is compared."""
    is_spoken: bool = False
    """Whether somebody says it."""
    is_flashback: bool = False
    """Whether its scene tells of earlier."""
    speaker: int = 0
    """Who says it, 0 if that is not clear."""
    subject: int = 0
    """Whom it is about where it names nobody: a card's subject, or the one spoken of last."""
    place: str = ""
    """Where its scene plays, as its metadata says."""
    field: str = ""
    """Name of a card's field."""
    there: int = 0
    """The place that `there` means, 0 if none was named."""
    answers: str = ""
    """The question in speech before it."""

    @property
    def is_card(self) -> bool:
        """Whether it stands on a card."""
        return self.order < 0


class Reader:
    """Reads the paragraphs of one file in order."""

    def __init__(self, roster: Roster, path: str, order: int, **scene: object) -> None:
        self._roster = roster
        self._path = path
        self._order = order
        self._scene = scene
        self._narrator = int(scene.pop("narrator", 0))  # type: ignore[call-overload]
        self._chain = Chain()
        self._speech = Chain()
        self._speakers: list[int] = []
        self._index = 0
        self._asked = ""
        self._there = 0
        self._is_first_person = False

    def read(self, paragraphs: Sequence[prose.Paragraph]) -> Iterator[Passage]:
        """Yield the passages of the paragraphs."""
        texts = [p.text.lower() for p in paragraphs]
        told = (m for p in paragraphs for m in _FIRST_PERSON.finditer(p.text) if not p.is_spoken(m.start()))
        self._is_first_person = len(list(itertools.islice(told, _OFTEN))) == _OFTEN
        for position, paragraph in enumerate(paragraphs):
            context = " ".join(texts[max(position - 1, 0) : position + 3])
            yield from self._paragraph(paragraph, context)

    def _paragraph(self, paragraph: prose.Paragraph, context: str) -> Iterator[Passage]:
        mentions = self._roster.cast.mentions(paragraph.text)
        parts = list(_parts(paragraph))
        told: dict[int, tuple[str, int]] = {}
        for number, (start, end, spoken) in enumerate(parts):
            if not spoken:
                told[number] = self._told(paragraph, mentions, start, end)
        main = self._speaker(paragraph, [text for text, _ in told.values()])
        asked, questions = self._asked, []
        for number, (start, end, spoken) in enumerate(parts):
            speaker = (_named_after(told, number) or main) if spoken else 0
            text, subject = told[number] if not spoken else self._said(paragraph, mentions, start, end, speaker)
            self._index += 1
            if spoken and text.rstrip("\"'”’ ").endswith("?"):
                questions.append(text)
            sentence = paragraph.sentence_at(start)
            yield Passage(
                text=text,
                path=self._path,
                line=paragraph.line_at(start),
                quote=bounds.clipped(sentence.text),
                context=context,
                order=self._order,
                index=self._index,
                is_spoken=spoken,
                speaker=speaker,
                subject=subject,
                there=self._there,
                answers=asked if spoken else "",
                **self._scene,  # type: ignore[arg-type]
            )
            for named in re.finditer(r"@(\d+)\b", text):
                if self._roster.may_be_place(int(named[1])) and int(named[1]) != self._roster.narrator:
                    self._there = int(named[1])
        self._asked = " ".join(questions)

    def _told(self, paragraph: prose.Paragraph, mentions: Sequence[Mention], start: int, end: int) -> tuple[str, int]:
        before = next((people[0] for people in reversed(self._chain.sentences) if people), 0)
        before = max(before, 0)
        self._chain.opened()
        narrator, who = self._narrator, self._narrator if self._is_first_person else 0
        text = _replaced(paragraph.text, mentions, start, end, self._roster, self._chain, narrator, exclude=who)
        return text, before

    def _said(
        self, paragraph: prose.Paragraph, mentions: Sequence[Mention], start: int, end: int, speaker: int
    ) -> tuple[str, int]:
        before = next((people[0] for people in reversed(self._speech.sentences) if people), 0)
        self._speech.opened()
        text = _replaced(
            paragraph.text,
            mentions,
            start,
            end,
            self._roster,
            self._speech,
            speaker,
            others=self._chain,
            exclude=speaker,
        )
        return text, before

    def _speaker(self, paragraph: prose.Paragraph, told: Sequence[str]) -> int:
        """Return who speaks in a paragraph: by a verb of speech, by who acts in it, or the one whose turn it is."""
        if not paragraph.speech:
            self._speakers = []
            return 0
        speaker = 0
        for text in told:
            said = [m for m in (_SAID.search(text), _SAYS.search(text)) if m]
            if said:
                match = min(said, key=lambda m: m.start())
                speaker = int(match[1])
                break
        if not speaker:
            people = [int(n) for text in told for n in re.findall(r"@[?~]?(\d+)\b(?!'s)", text)]
            speaker = people[0] if people and self._roster.is_person(people[0]) else 0
        if not speaker and not told and len(self._speakers) > 1:
            speaker = self._speakers[-2]
        self._speakers = [*self._speakers[-1:], speaker]
        return speaker


def _named_after(told: Mapping[int, tuple[str, int]], number: int) -> int:
    """Return who is said to speak in the words right after a speech, 0 if they do not say."""
    text = told.get(number + 1, ("", 0))[0]
    match = _SAYS.match(text) or re.match(rf"\W*{_SAID.pattern}", text)
    return int(match[1]) if match else 0


def _parts(paragraph: prose.Paragraph) -> Iterator[tuple[int, int, bool]]:
    """Yield start, end and whether it is spoken of each sentence, cut where speech begins or ends."""
    cuts = sorted({cut for span in paragraph.speech for cut in (span.start, span.end)})
    for sentence in paragraph.sentences:
        edges = [sentence.start, *(cut for cut in cuts if sentence.start < cut < sentence.end), sentence.end]
        for start, end in itertools.pairwise(edges):
            if _WORD.search(paragraph.text, start, end):
                yield start, end, paragraph.is_spoken(start)


def _replaced(
    text: str,
    mentions: Sequence[Mention],
    start: int,
    end: int,
    roster: Roster,
    chain: Chain,
    first_person: int,
    *,
    others: Chain | None = None,
    exclude: int = 0,
) -> str:
    """Return a stretch of text with names and pronouns replaced, and note in the chain who was named."""
    pieces: list[str] = []
    position = start
    unnamed = {m.start("noun"): unnamed_gender(m["noun"]) for m in UNNAMED.finditer(text, start, end)}
    named = {m.start: m for m in mentions if start <= m.start < end}
    for match in _WORD.finditer(text, start, end):
        if match.start() < position:
            continue
        mention = named.get(match.start())
        if mention is not None and mention.end <= end and not _is_told(text, mention, start, mentions):
            piece, after = _named(text, mention, end, roster, chain)
            pieces, position = [*pieces, text[position : mention.start], piece], after
            continue
        if match.start() in unnamed:
            chain.add(described(text, match.start(), unnamed[match.start()], chain, roster))
        bare = match[0].replace("’", "'").partition("'")[0]
        if bare.lower() == "our":
            piece, after = _kin(text, first_person, f"@{first_person}'s", match.end(), roster, chain)
            if after > match.end():
                pieces, position = [*pieces, text[position : match.start()], piece], after
            continue
        gender = _PRONOUNS.get(bare.lower())
        if gender is None or (bare == "i" and gender == "i"):
            continue
        before = "".join(pieces[-2:]) + text[position : match.start()]
        person, doubtful = first_person, False
        if gender != "i":
            person, doubtful = _meant(chain, others, roster, gender, exclude, before)
        if person:
            chain.add(person)
        if person > 0:
            mark = f"@{'?' if doubtful else '' if gender == 'i' else '~'}{person}"
            piece, after = _kin(text, person, *_pronoun(text, match, mark), roster, chain)
            pieces += [text[position : match.start()], piece]
            position = after
    return _DISLOCATED.sub(r"@\2", wording.plain("".join([*pieces, text[position:end]])))


def _is_told(text: str, mention: Mention, start: int, mentions: Sequence[Mention]) -> bool:
    """Return whether an office is what a sentence says of somebody: `Jonas, the baker`, `the baker Jonas`, `Jonas was
    the baker`.
    """
    if not text.startswith(("the ", "The "), mention.start) or not text[mention.start + 4].islower():
        return False
    before = text[start : mention.start]
    told = re.search(r"\b(?:is|was|am|are|been|only|become|became) $", before) or any(
        m.after == mention.start - 2 and m.entity is mention.entity for m in mentions
    )
    opens = not before.strip() and re.match(r"[.,;]|$| of | in | at ", text[mention.after :])
    named = next((m for m in mentions if mention.after < m.start <= mention.after + 2), None)
    return bool(told or opens) or (named is not None and named.entity is mention.entity)


def _named(text: str, mention: Mention, end: int, roster: Roster, chain: Chain) -> tuple[str, int]:
    """Return what stands for a name, and where the text continues."""
    person = roster.number(mention.entity)
    piece, after = f"@{person}" + ("'s" if mention.is_possessive else ""), min(mention.after, end)
    if not roster.is_person(person):
        return piece, after
    chain.add(person)
    return _kin(text, person, piece, after, roster, chain)


def _kin(text: str, person: int, piece: str, after: int, roster: Roster, chain: Chain) -> tuple[str, int]:
    """Return the only brother for `his brother`, and where the text continues; else what was given."""
    match = _KIN.match(text, after) if piece.endswith("'s") and "?" not in piece else None
    relative = roster.relative(person, match["k"].lower()) if match else 0
    if not match or not relative:
        return piece, after
    chain.add(relative)
    return f"@~{relative}" + ("'s" if match["s"] else ""), match.end()


def _pronoun(text: str, match: re.Match[str], mark: str) -> tuple[str, int]:
    """Return what stands for a pronoun, and where the text continues; `he's` becomes `@n is`."""
    bare, _, tail = match[0].replace("’", "'").partition("'")
    following = _WORD.match(text, match.end() + 1)
    if tail == "s":
        return f"{mark} is", match.end()
    possessive = _is_possessive(bare.lower(), following, text[match.end() : match.end() + 1])
    return mark + ("'s" if possessive else ""), match.start() + len(bare) if tail else match.end()


def _meant(
    chain: Chain, others: Chain | None, roster: Roster, gender: str, exclude: int, before: str
) -> tuple[int, bool]:
    """Return whom a pronoun means, and whether that is doubtful; in speech it is, unless the speech has named the
    person.
    """
    own = _SUBJECT_IS.search(before)
    exclude = int(own[1]) if own else exclude
    opens = not re.search(r"[^\W_]", before)
    person, doubtful = chain.meant(roster, gender, exclude, opens=opens and others is None)
    if others is None:
        return person, doubtful
    if not person:
        return others.meant(roster, gender, exclude)[0], True
    return person, doubtful or person not in chain.sentences[-1]


def _is_possessive(word: str, following: re.Match[str] | None, after: str) -> bool:
    if word == "her":
        return following is not None and after == " " and following[0].lower() not in _AFTER_OBJECT
    return word in _POSSESSIVE


def of_line(text: str, subject: int, roster: Roster) -> str:
    """Return a line of a card with its names and pronouns replaced; a pronoun without a name before it means the
    subject.
    """
    chain = Chain()
    chain.opened()
    chain.add(subject)
    chain.opened()
    text = wording.with_subject(text, roster.name(subject), roster.is_person(subject))
    replaced = _replaced(text, roster.cast.mentions(text), 0, len(text), roster, chain, 0)
    return replaced.replace(f"@?{subject}'", f"@~{subject}'").replace(f"@?{subject} ", f"@~{subject} ")


def of_document(document: documents.Document, reader: Reader) -> list[Passage]:
    """Return the passages of a file."""
    return list(reader.read(prose.paragraphs(document)))
