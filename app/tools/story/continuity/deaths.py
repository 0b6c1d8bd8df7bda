"""Deaths: who is dead, since when, and who acts all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.tools.story import dates
from app.tools.story.continuity import facts, vocabulary
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

_P = rf"(?P<p>{vocabulary.PERSON})"
_JEST = r"(?! (?:of )?(?:laughing|laughter|boredom|shame|curiosity|embarrassment|envy|joy|fright|to know|to see|for (?:a|an|some)\b|away|down))"
_DIED = (
    r"(?:died|dies|has died|had died|perished|drowned|was drowned|had drowned|(?:was|were) (?:killed|hanged|murdered|buried|shot dead|"
    r"stabbed to death|beheaded|burned to death|lost at sea|laid to rest|found (?:dead|drowned|hanged|murdered)|no more\b(?! than))|"
    r"had been (?:killed|hanged|murdered|buried|drowned|shot|laid to rest)|has been (?:killed|hanged|murdered|buried)|"
    r"(?:is|was|lay|lies|had been|has been|being) (?:[a-z-]+ ){0,3}?(?:dead|buried)(?! (?:tired|sure|certain|set|on|ahead|asleep|calm|drunk|serious|"
    r"right|against|to|of night|in a|in thought|in work|under a))|passed away|"
    r"(?:had )?(?:breathed|drawn|drew) (?:his|her|@[?~]?\d+'s) last|bled to death|froze to death|starved to death|burned to death|"
    r"(?:did not|never) wake(?: up)?(?: again)?(?=[,.;]|$)|never woke(?: up)?(?: again)?(?=[,.;]|$)|stopped breathing|"
    r"(?:had )?(?:broke|broken) (?:his|her|@[?~]?\d+'s) neck|succumbed to|took (?:his|her|@[?~]?\d+'s) own life|"
    r"(?:hanged|drowned|shot|poisoned) (?:himself|herself)|(?:had )?fell in (?:the war|battle)|had fallen (?:at @\d+|in (?:the war|battle))|"
    r"(?:had )?(?:gone down|went down|was lost|had been lost) with (?:@[?~]?\d+'s|the) (?:ship|boat)|with all hands|"
    r"(?:is|was|had been|has been|have been|lies|lay) (?:in|under) (?:the |@\d+'s )?(?:churchyard|graveyard|cemetery|ground|grave|earth)(?! floor)|"
    r"went to (?:the gallows|the scaffold))"
)
_KILLER = (
    r"(?:sea|river|water|weir|fever|scurvy|dysentery|chill|blow-out|explosion|typhoid|diphtheria|heart|lungs|gout|croup|measles|cholera|typhus|plague|pox|smallpox|consumption|influenza|pneumonia|cancer|war|flood|"
    r"avalanche|bullet|fire|winter|drink|frost|cold|mine|quarry|pit|storm|flames|rope|hangman|epidemic|childbed|stroke|fall)"
)
_RULES = (
    re.compile(rf"{_P}(?!'s)(?:,? who)? (?:[a-z]+ly )?{_DIED}\b{_JEST}", re.IGNORECASE),
    re.compile(
        rf"{_P}'s (?:own )?(?:death|corpse|grave|funeral|murder|burial|coffin|headstone|gravestone|tomb|tombstone|dead body|wake|widow|widower|ghost|"
        r"heart (?:had )?stopped|last breath|execution)\b",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?:death|corpse|grave|funeral|murder|body|burial|coffin|headstone|tomb|widow|widower|execution|hanging) of (?:the late |poor |old )?{_P}(?!'s)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?:the late|poor dead|the dead|@[?~]?\d+'s late (?:husband|wife|father|mother|brother|sister),?) (?-i:[A-Z][a-z]+ )?{_P}(?!'s)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?:buried|bury|burying|hanged|killed|murdered|mourned|mourning for|shot and killed|laid out|beheaded) (?:poor |old |(?-i:[A-Z][a-z]+ )){{0,2}}{_P}(?!'s)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P}(?:, dead|, who was dead| dead)\b(?= (?:these|and buried|in the ground|for|since|now|at last|on the|,|\.))",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P}, whom (?:the |an? )?(?:[a-z]+ )?{_KILLER} (?:had )?(?:took|taken|killed|carried off|finished|claimed)|"
        rf"\b(?:broke|broken) (?P<p2>{vocabulary.PERSON})'s neck|{_KILLER} (?:that |which )?(?P<p3>{vocabulary.PERSON}) died of",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b{_KILLER} (?:that |which )?(?:had |has )?(?:took|taken|killed|drowned|carried off|claimed|swallowed|finished) {_P}(?!'s)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?:quarry|roof|wall|cliff|mine|tree|tunnel) (?:had )?(?:came|come) down (?:on|upon) {_P}(?!'s)",
        re.IGNORECASE,
    ),
    re.compile(rf"\b(?:lost|losing|lose) (?-i:[A-Z][a-z]+ )?{_P} (?:to|in) (?:the |a )?{_KILLER}\b", re.IGNORECASE),
    re.compile(
        rf"\b(?:laid|lowered|lowering|laying|carried|put) {_P} (?:to rest|(?:in|into|to) (?:the |@[?~]?\d+'s )?(?:earth|ground|grave|churchyard|graveyard|coffin))\b",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?:buried|bury|burying) (?:the|our|my|@[?~]?\d+'s) [a-z]+(?:,|[^.!?@]{{0,60}}[;:] poor) (?-i:[A-Z][a-z]+\.? )?{_P}(?!'s)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\bclosed {_P}'s eyes (?:for @[?~]?\d+|and (?:crossed|stopped|covered|folded)|for the last)", re.IGNORECASE
    ),
)
_CAUSES = {
    "an explosion": r"blow-?out|explosion|blown up|exploded",
    "water": r"drown\w*|the weir\b|lost at sea|the (?:sea|river|water)\b (?:had )?(?:took|taken|claimed|swallowed|killed)|went down with|gone down with",
    "illness": r"fever|scurvy|dysentery|typhoid|consumption|cholera|typhus|plague|smallpox|influenza|pneumonia|cancer|diphtheria|(?:his|her|@[?~]?\d+'s) lungs|phthisis|measles|illness",
    "the rope": r"hanged|gallows|hangman|the rope",
    "a shot": r"shot\b|bullet",
    "war": r"killed in (?:action|the war)|in (?:battle|the war)|at the front|flanders|in the trenches",
    "a fall": r"broke\w* (?:his|her|@[?~]?\d+'s) neck|fell from|fell off|fallen from|a fall from|thrown from|thrown by",
    "fire": r"burned to death|burnt to death|in the (?:fire|flames)\b|the fire (?:had )?(?:took|killed)",
    "a blade": r"stabbed|knife|beheaded",
    "poison": r"poison\w*|arsenic",
    "fallen rock": r"(?:quarry|roof|wall|cliff|mine|tunnel|tree) (?:had )?(?:came|come) down|avalanche|rockfall|cave-in|crushed",
    "childbirth": r"childbirth|childbed|giving birth",
    "old age": r"old age|in (?:his|her|@[?~]?\d+'s) sleep",
}
_CAUSES_READ = {name: re.compile(rf"\b(?:{words})", re.IGNORECASE) for name, words in _CAUSES.items()}
_CARD = re.compile(
    rf"{_P}'s (?:died|death|date of death|status|fate|grave|state|end)(?P<w>[^:]{{0,30}}) : (?P<v>.+)", re.IGNORECASE
)
_LATER = re.compile(
    r"(?:,|\band|\bthen|\bbut) (?P<v>died|drowned|perished|was (?:drowned|killed|hanged|shot|murdered))\b"
)
_YEAR = re.compile(
    rf"(?:\b(?:in|of|since|,) |\()'?(?P<y>(?<=')\d\d|(?:{dates.NUMBER}))(?=[,.;:)]| (?:with|on|at|when|after|and)\b|$)"
)
_TIMED = re.compile(
    r"\b(?:[A-Z][a-z]+ary|March|April|May|June|July|August|[A-Z][a-z]+ber|\d{4}|last (?:spring|summer|autumn|winter|year))\b"
)
_CARD_DEAD = re.compile(
    r"^(?:dead|deceased|died|drowned|killed|murdered|buried|hanged|in the churchyard|lost)\b", re.IGNORECASE
)
_CARD_ALIVE = re.compile(r"^(?:alive|living)\b", re.IGNORECASE)
_ACTS = re.compile(
    rf"{_P}(?!'s)(?:,? (?:[a-z]+ly|himself|herself|too|then|only)|, (?!and\b|but\b|or\b)[^,.;:@]{{3,50}},)? (?P<v>[a-z]+ed|(?:was|is) (?!being\b|lying\b|missing\b)[a-z]+ing|"
    rf"{vocabulary.PAST}|is|waits|says|comes|goes|stands|sits)\b",
    re.IGNORECASE,
)
_SAYS = re.compile(rf"\b(?:{vocabulary.SPEECH_VERBS}) (?:(?:old|young|the) )?{_P}(?!'s)", re.IGNORECASE)
_MET = re.compile(
    rf"\b(?:met|greeted|kissed|thanked|embraced|shook hands with|nodded (?:to|at)|waved (?:to|at)|danced with|beside them,) {_P}(?!'s)(?! (?:had|was to|in (?:@|the (?:spring|summer|autumn|winter))))",
    re.IGNORECASE,
)
_ADDRESSED = re.compile(rf"\byou\b[^.!?@]{{0,60}}, {_P}\?")
_OBJECT = re.compile(r"\b(?:to|from|of|with|for|by|near|than|about) $")
_ELSEWHEN = re.compile(
    r"\b(?:dreamt?|dreamed|remember\w*|recall\w*|memory|memories|ghost|portrait|photograph|painting|diary|years? (?:ago|before|earlier)|"
    r"(?:winters?|summers?|weeks|months|days|nights|springs|autumns) (?:ago|before|earlier)|the (?:day|night|year|morning|time|winter|summer) (?:that |when |@)|"
    r"in the days|in those days|thought of|said to have|believed|as though|used to|tombstone|headstone|spirit|prayed|imagin\w+|story of|tale of)\b",
    re.IGNORECASE,
)
_LOOKS_BACK = re.compile(
    r"\b(?:remember\w*|dreamt?|dreamed|(?:years?|winters?|summers?|springs|autumns) (?:ago|before|earlier)|in those days|ghost)\b"
)
_YEARS_BACK = re.compile(r"\b(?:years?|winters?|summers?|springs|autumns) (?:ago|before|earlier)[^.]{0,80}\bhad\b")
_NOT_SEEN = re.compile(
    r"\b(?:had|once|always|would|could|if|never|when|since|before|after|until|whom|which|that|whose|who|what|died|dead|"
    r"buried|killed|drowned|late|last|voice|like|where|because|name|left|meant|called(?! (?:from|out|down|up|across|to|over))|lived|loved|taught|built|owned|letter|grave|tomb\w*)\b",
    re.IGNORECASE,
)
_PRESUMED = re.compile(
    r"\b(?:thought|believed|presumed|said|reported|supposed|taken|given up|rumou?r\w*|as if|seemed|feared|half(?! the\b)|nearly|almost|"
    r"think|thinks|believe|believes|they say|not|never|if|might|would|could|may|until|till|before|when|dream\w*|unless|like|"
    r"wish\w*|imagin\w*|as good as|list\w*|papers?|lie|lied|lying|must be|must have|will|shall|want\w*|than|told (?:me|us|him|her) that|"
    r"told (?:me|us|him|her|@[?~]?\d+) @)\b",
    re.IGNORECASE,
)


_SINCE = re.compile(r"\b(?:before|when|until|till)\b", re.IGNORECASE)
_NO_WAKING = re.compile(r"(?:did not|never) w[ao]ke", re.IGNORECASE)
_SENTENCE_PART = re.compile(r"[;!?]|\.(?= |$)|, (?:but|while|so) ")
_NEAR = 130
_SHORT_YEARS = 12
_CENTURY = 100


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield who is dead, and who is seen alive."""
    text = passage.text
    for match in _CARD.finditer(text):
        yield from _carded(passage, roster, match)
    for rule in _RULES:
        for match in rule.finditer(text):
            named = next(name for name in ("p", "p2", "p3") if name in match.re.groupindex and match[name])
            number, sure = facts.person(match, named)
            before = facts.clause(text, match.start())
            if _TIMED.search(text):
                before = re.sub(r"\b(?:until|till|when|before)\b", "", before)
            if _is_presumed(before) or _is_presumed(_NO_WAKING.sub("", _SINCE.sub("", match[0]))) or text.endswith("?"):
                continue
            own = re.search(rf"@{number}\b(?!')", text[: match.start(named)]) is not None
            pronoun = "~" in match[named] and (match.start(named) > 1 or passage.is_spoken) and not own
            if roster.is_person(number):
                yield _fact(passage, roster, number, sure and not pronoun, "dead")
                yield from _of_what(passage, roster, number, sure, match)
    for match in () if passage.field else _LATER.finditer(text):
        before = text[: match.start()]
        number, sure = facts.bearer(passage, match.start(), match.end(), roster)
        if (
            sure
            and roster.is_person(number)
            and f"@{number}" in before
            and not _is_presumed(facts.clause(text, match.start()))
        ):
            yield _fact(passage, roster, number, sure, "dead")
            yield from _of_what(passage, roster, number, sure, match)
    if not passage.is_card and not passage.is_flashback:
        yield from _seen(passage, roster)


def _is_presumed(text: str) -> bool:
    return bool(_PRESUMED.search(re.sub(r"\bMay\b", "", text)))


def _of_what(passage: Passage, roster: Roster, number: int, sure: bool, match: re.Match[str]) -> Iterator[Fact]:
    """Yield of what and in which year somebody died, where the same clause says it."""
    end = _SENTENCE_PART.search(passage.text, match.end())
    stretch = passage.text[match.start() : end.start() if end else len(passage.text)][:_NEAR]
    if facts.is_unreal(passage, match.start(), match.end()):
        return
    causes = [name for name, words in _CAUSES_READ.items() if words.search(stretch)]
    if len(causes) == 1:
        yield _fact(passage, roster, number, sure, causes[0], "cause")
    before = facts.clause(passage.text, match.start())
    years = {date.year for date in dates.find(f"{before} {stretch}", bare_years=True) if date.year}
    short = [_year(found["y"]) for found in _YEAR.finditer(stretch)] if not years else []
    years |= {year for year in short if year is not None and year > _SHORT_YEARS}
    year = years.pop() if len(years) == 1 else None
    if year is not None:
        yield _fact(passage, roster, number, sure, str(year), "died", dates.StoryDate(year=year))


def _year(text: str) -> int | None:
    return dates.number(text.strip("'"))


def _seen(passage: Passage, roster: Roster) -> Iterator[Fact]:
    text = passage.text
    if _LOOKS_BACK.search(text) or _YEARS_BACK.search(passage.context):
        return
    for rule in (_ADDRESSED,) if passage.is_spoken else (_ACTS, _SAYS, _MET):
        for match in rule.finditer(text):
            number, sure = facts.person(match)
            if _OBJECT.search(text, 0, match.start()) or _ELSEWHEN.search(text, 0, match.end() + 12):
                continue
            before = "" if passage.is_spoken else facts.clause(text, match.start()).rpartition(",")[2]
            acts = match.groupdict().get("v") or match[0]
            if roster.is_person(number) and not _NOT_SEEN.search(
                f"{before} {acts}{text[match.end() : match.end() + 12]}"
            ):
                # A pronoun too easily means somebody else: only a name is evidence of a life.
                named = "~" not in match["p"] or re.search(rf"@{number}\b(?!')", text[: match.start("p")])
                yield _fact(passage, roster, number, sure and bool(named), "alive")
                return


def _carded(passage: Passage, roster: Roster, match: re.Match[str]) -> Iterator[Fact]:
    number, _ = facts.person(match)
    field = match[0].split("'s ", 1)[1].split(" : ")[0].lower()
    value = match["v"].strip()
    if _CARD_ALIVE.match(value):
        yield _fact(passage, roster, number, True, "living")
    is_death = field.split()[0] in {"died", "death", "date", "grave"} or _CARD_DEAD.match(value)
    if is_death and not _is_presumed(value):
        yield _fact(passage, roster, number, True, "dead")
        yield from _of_what(passage, roster, number, True, match)


def _fact(
    passage: Passage,
    roster: Roster,
    number: int,
    sure: bool,
    value: str,
    attribute: str = "status",
    data: object = None,
) -> Fact:
    return Fact(
        kind="death",
        attribute=attribute,
        subject=roster.name(number),
        key=("died", str(number)) if attribute == "died" else (str(number),),
        value=value,
        data=data or (value, _when(passage) if value == "dead" else None),
        passage=passage,
        is_sure=sure,
    )


def _when(passage: Passage) -> dates.StoryDate | int | None:
    scene = re.search(r"\bscene (\d{1,4})\b", passage.text, re.IGNORECASE)
    if scene:
        return int(scene[1])
    found = dates.find(passage.text, bare_years=True)
    return found[0] if found else None


def differ(one: Fact, other: Fact) -> bool:
    """Return whether somebody acts who is dead by then."""
    if isinstance(one.data, dates.StoryDate) and isinstance(other.data, dates.StoryDate):
        years = (one.data.year or 0, other.data.year or 0)
        if min(years) < _CENTURY:
            return years[0] % _CENTURY != years[1] % _CENTURY
        return one.data.contradicts(other.data)
    if one.attribute == "cause":
        return bool(one.data[0] != other.data[0])
    by_value = {fact.data[0]: fact for fact in (one, other)}
    dead = by_value.get("dead")
    if dead is None or len(by_value) < 2:
        return False
    if "living" in by_value:
        return not dead.passage.is_card
    seen, when = by_value["alive"].passage, dead.data[1]
    if seen.is_flashback:
        return False
    if isinstance(when, int):
        return seen.number is not None and seen.number > when
    same_year = (
        seen.date is not None
        and isinstance(when, dates.StoryDate)
        and seen.date.month is None
        and seen.date.year == when.year
    )
    if same_year:
        return not dead.passage.is_card and seen.order > dead.passage.order
    if isinstance(when, dates.StoryDate) and seen.date is not None:
        return when.is_before(seen.date) and (
            when.year is not None or not dead.passage.is_card or seen.date.year is None
        )
    if isinstance(when, dates.StoryDate) and when.year is not None and dead.passage.is_card and not seen.is_alone:
        return False
    return dead.passage.is_card or seen.order > dead.passage.order


def is_dated(fact: Fact) -> bool:
    """Return whether a death has a date, or is told by a scene."""
    return not fact.passage.is_card or not isinstance(fact.data, tuple) or fact.data[1] is not None
