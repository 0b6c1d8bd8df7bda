"""The reader: cuts the paragraphs of a file into passages, in which names and pronouns are replaced."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from app.tools import bounds
from app.tools.story import prose
from app.tools.story.cast import Mention
from app.tools.story.continuity import coreference, language
from app.tools.story.continuity.coreference import Chain
from app.tools.story.continuity.language import Patterns, words
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

_P = Patterns("reader")
_OFTEN = 3


class Reader:
    """Reads the paragraphs of one file in order."""

    def __init__(self, roster: Roster, path: str, order: int, *, narrator: int = 0, **scene: object) -> None:
        self._roster = roster
        self._scene = {"roster": roster, "path": path, "order": order, **scene}
        self._narrator = narrator
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
        stated = (m for p in paragraphs for m in _P.first_person.finditer(p.text) if not p.is_spoken(m.start()))
        self._is_first_person = len(list(itertools.islice(stated, _OFTEN))) == _OFTEN
        for position, paragraph in enumerate(paragraphs):
            context = " ".join(texts[max(position - 1, 0) : position + 3])
            yield from self._paragraph(paragraph, context)

    def _paragraph(self, paragraph: prose.Paragraph, context: str) -> Iterator[Passage]:
        mentions = self._roster.cast.mentions(paragraph.text)
        parts = list(_parts(paragraph))
        # Narration first: it names the speakers of the quotes between.
        stated = {
            index: self._replaced_speech(_Stretch(paragraph.text, mentions, start, end, self._roster))
            for index, (start, end, spoken) in enumerate(parts)
            if not spoken
        }
        main = self._speaker(paragraph, [text for text, _ in stated.values()])
        wanted_terms, questions = self._asked, []
        for index, (start, end, spoken) in enumerate(parts):
            speaker = (_named_after(stated, index) or main) if spoken else 0
            stretch = _Stretch(paragraph.text, mentions, start, end, self._roster)
            text, subject = self._said(stretch, speaker) if spoken else stated[index]
            self._index += 1
            if spoken and text.rstrip("\"'”’ ").endswith("?"):
                questions.append(text)
            yield Passage(
                text=text,
                line=paragraph.line_at(start),
                quote=bounds.clipped(paragraph.sentence_at(start).text),
                context=context,
                index=self._index,
                is_spoken=spoken,
                speaker=speaker,
                subject=subject,
                there=self._there,
                answers=wanted_terms if spoken else "",
                **self._scene,  # type: ignore[arg-type]
            )
            for named in map(int, re.findall(r"@(\d+)\b", text)):
                if self._roster.may_be_place(named) and named != self._roster.narrator:
                    self._there = named
        self._asked = " ".join(questions)

    def _replaced_speech(self, stretch: _Stretch) -> tuple[str, int]:
        before = self._chain.last()
        self._chain.opened()
        who = self._narrator if self._is_first_person else 0
        return stretch.replaced(self._chain, self._narrator, exclude=who), before

    def _said(self, stretch: _Stretch, speaker: int) -> tuple[str, int]:
        before = self._speech.last()
        self._speech.opened()
        return stretch.replaced(self._speech, speaker, others=self._chain, exclude=speaker), before

    def _speaker(self, paragraph: prose.Paragraph, stated: Sequence[str]) -> int:
        if not paragraph.speech:
            self._speakers = []
            return 0
        in_words = ([m for m in (_P.said.search(text), _P.says.search(text)) if m] for text in stated)
        speaker = next((int(min(found, key=lambda m: m.start())[1]) for found in in_words if found), 0)
        if not speaker:
            people = [int(n) for text in stated for n in re.findall(r"@[?~]?(\d+)\b(?!'s)", text)]
            speaker = people[0] if people and self._roster.is_person(people[0]) else 0
        # Two people in a dialogue take turns.
        if not speaker and not stated and len(self._speakers) > 1:
            speaker = self._speakers[-2]
        self._speakers = [*self._speakers[-1:], speaker]
        return speaker


def _named_after(stated: Mapping[int, tuple[str, int]], index: int) -> int:
    """Return the speaker named in the words right after a speech, 0 if they name none."""
    text = stated.get(index + 1, ("", 0))[0]
    match = _P.says.match(text) or _P.opens_with_said.match(text)
    return int(match[1]) if match else 0


def _parts(paragraph: prose.Paragraph) -> Iterator[tuple[int, int, bool]]:
    cuts = sorted({cut for span in paragraph.speech for cut in (span.start, span.end)})
    for sentence in paragraph.sentences:
        edges = [sentence.start, *(cut for cut in cuts if sentence.start < cut < sentence.end), sentence.end]
        for start, end in itertools.pairwise(edges):
            if _P.word.search(paragraph.text, start, end):
                yield start, end, paragraph.is_spoken(start)


class _Stretch:
    """A part of a text in which names and pronouns are replaced."""

    def __init__(self, text: str, mentions: Sequence[Mention], start: int, end: int, roster: Roster) -> None:
        self._text = text
        self._mentions = mentions
        self._start = start
        self._end = end
        self._roster = roster
        self._pieces: list[str] = []
        self._position = start

    def replaced(self, chain: Chain, first_person: int, *, others: Chain | None = None, exclude: int = 0) -> str:
        """Return the text with names and pronouns replaced, and add the people to the chain."""
        unnamed = {
            m.start("noun"): m for m in coreference.PATTERNS.unnamed.finditer(self._text, self._start, self._end)
        }
        named = {m.start: m for m in self._mentions if self._start <= m.start < self._end}
        for match in _P.word.finditer(self._text, self._start, self._end):
            if match.start() < self._position:
                continue
            mention = named.get(match.start())
            if mention is not None and mention.end <= self._end and not self._is_description(mention):
                self._put(match.start(), self._name(mention, chain))
                continue
            if match.start() in unnamed:
                chain.add(coreference.described(self._text, unnamed[match.start()], chain, self._roster))
            bare = match[0].replace("’", "'").partition("'")[0]
            gender = language.classes("pronouns").get(bare.lower()) if bare != "i" else None
            if bare.lower() == "our":
                piece, after = self._kin(first_person, f"@{first_person}'s", match.end(), chain)
                if after > match.end():
                    self._put(match.start(), (piece, after))
            elif gender:
                person, mark = first_person, ""
                if gender != "i":
                    person, doubtful = self._meant(match, gender, chain, others, exclude)
                    mark = "?" if doubtful else "~"
                if person:
                    chain.add(person)
                if person > 0:
                    self._put(match.start(), self._kin(person, *_pronoun(self._text, match, f"@{mark}{person}"), chain))
        text = "".join([*self._pieces, self._text[self._position : self._end]])
        return _P.dislocated.sub(r"@\2", language.plain(text))

    def _put(self, start: int, piece_and_after: tuple[str, int]) -> None:
        self._pieces += [self._text[self._position : start], piece_and_after[0]]
        self._position = piece_and_after[1]

    def _is_description(self, mention: Mention) -> bool:
        """Return whether an office describes a name: `Jonas, the baker`, `Jonas was the baker`."""
        text, entity = self._text, mention.entity
        if not text.startswith(("the ", "The "), mention.start) or not text[mention.start + 4].islower():
            return False
        before = text[self._start : mention.start]
        stated = _P.said_of.search(before) or any(
            m.after == mention.start - 2 and m.entity is entity for m in self._mentions
        )
        opens = not before.strip() and _P.ends_or_of.match(text, mention.after)
        named = next((m for m in self._mentions if mention.after < m.start <= mention.after + 2), None)
        return bool(stated or opens) or (named is not None and named.entity is entity)

    def _name(self, mention: Mention, chain: Chain) -> tuple[str, int]:
        """Return the replacement of a name, and the position where the text continues."""
        person = self._roster.number(mention.entity)
        piece, after = f"@{person}" + ("'s" if mention.is_possessive else ""), min(mention.after, self._end)
        if not self._roster.is_person(person):
            return piece, after
        chain.add(person)
        return self._kin(person, piece, after, chain)

    def _kin(self, person: int, piece: str, after: int, chain: Chain) -> tuple[str, int]:
        """Return the only brother for `his brother`, and the position where the text continues; otherwise the piece itself."""
        match = _P.kin.match(self._text, after) if piece.endswith("'s") and "?" not in piece else None
        relative = self._roster.relative(person, match["k"].lower()) if match else 0
        if not match or not relative:
            return piece, after
        chain.add(relative)
        return f"@~{relative}" + ("'s" if match["s"] else ""), match.end()

    def _meant(
        self, match: re.Match[str], gender: str, chain: Chain, others: Chain | None, exclude: int
    ) -> tuple[int, bool]:
        """Return the person a pronoun means, and whether that is uncertain."""
        before = "".join(self._pieces[-2:]) + self._text[self._position : match.start()]
        own = _P.subject_is.search(before)
        exclude = int(own[1]) if own else exclude
        opens = not re.search(r"[^\W_]", before)
        person, doubtful = chain.meant(self._roster, gender, exclude, opens=opens and others is None)
        if others is None:
            return person, doubtful
        if not person:
            return others.meant(self._roster, gender, exclude)[0], True
        return person, doubtful or person not in chain.sentences[-1]


def _pronoun(text: str, match: re.Match[str], mark: str) -> tuple[str, int]:
    """Return the replacement of a pronoun, and the position where the text continues; `he's` becomes `@n is`."""
    bare, _, tail = match[0].replace("’", "'").partition("'")
    following = _P.word.match(text, match.end() + 1)
    if tail == "s":
        return f"{mark} is", match.end()
    possessive = bare.lower() in words("possessive")
    if bare.lower() == "her":
        spaced = text[match.end() : match.end() + 1] == " "
        possessive = following is not None and spaced and following[0].lower() not in words("after_object")
    return mark + ("'s" if possessive else ""), match.start() + len(bare) if tail else match.end()


def of_line(text: str, subject: int, roster: Roster) -> str:
    """Return a card's line with names and pronouns replaced; a pronoun before the first name means the subject."""
    chain = Chain()
    chain.opened()
    chain.add(subject)
    chain.opened()
    text = language.with_subject(text, roster.name(subject), roster.is_person(subject))
    replaced = _Stretch(text, roster.cast.mentions(text), 0, len(text), roster).replaced(chain, 0)
    # In the lines of a card a pronoun for its subject is certain.
    return replaced.replace(f"@?{subject}'", f"@~{subject}'").replace(f"@?{subject} ", f"@~{subject} ")
