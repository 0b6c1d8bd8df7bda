"""Objects: what happens to a watch or a letter, followed over sentences, `it` included."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.tools.story import dates
from app.tools.story.continuity import facts, vocabulary
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

_NOUNS = (
    "accordion|mare|horse|pony|boat|dinghy|skiff|cart|cello|coin|cloak|amulet|badge|bangle|bicycle|binoculars|bow|bracelet|brooch|bugle|cameo|camera|cane|chain|chalice|charm|chart|chronometer|"
    "clarinet|clock|compass|concertina|crown|crucifix|cutlass|dagger|deed|diary|drum|earrings?|fiddle|flag|flask|flute|goblet|guitar|gun|"
    "hammer|harmonica|helmet|idol|jewel|journal|key|knife|lamp|lantern|ledger|letter|lighter|locket|logbook|lute|mandolin|manuscript|map|"
    "medal|medallion|mirror|mouth-organ|music-box|musket|necklace|notebook|oboe|painting|parasol|passport|pearls?|pen|pendant|photograph|"
    "pin|pipe|pistol|pocketbook|portrait|prompt-book|purse|quadrant|razor|recorder|relic|repeater|revolver|rifle|ring|rosary|sabre|"
    "satchel|scarab|sceptre|sextant|shawl|signet|slate|snuffbox|spectacles|spyglass|statuette|sword|tankard|telescope|thimble|"
    "tobacco-box|toolbox|trumpet|umbrella|viola|violin|wallet|watch|whistle"
)
_MATERIALS = frozenset(
    "brass iron silver gold golden copper bronze steel tin wooden glass bone ivory stone lead leather pewter oak jade amber "
    "black white red green blue brown yellow grey old new big little small long short".split()
)
_THING = re.compile(
    rf"(?<![\w@])(?:(?P<det>[Tt]he|[Tt]hat|[Tt]his|[Hh]is|[Hh]er|[Aa]n?|{vocabulary.PERSON}'s(?: (?:[a-z]+|{vocabulary.PERSON})'s)?) |(?=[a-z]+,? (?:[Nn]o\. )?\d\d))"
    rf"(?P<adj>(?:(?!of\b|and\b|in\b|to\b|with\b|was\b|on\b)[\w-]+,? ){{0,3}}?)(?:\w+-)?(?P<head>\w+-(?:book|box|glass)|{_NOUNS})\b"
    r"(?P<n>(?:,? [Nn]o\.?| number)? \d{1,4})?(?!-|'s)(?! (?:of (?:hands?|the (?:house|door))|key\b|case\b|chain\b|shop\b|hole\b))"
)
_IT = re.compile(
    r"\b(?:[Ii]t|[Tt]hem)\b(?! (?:is|was|had been|would be|be) (?:[a-z]+ )?(?:that|a|an|the|too|time|raining|snowing|dark|late|cold)\b)"
)
_PRONOUNS_REACH = 8
_T = r"#(?P<t>\d+)\b"
_SINK = (
    r"\b(?:in|into|on|onto|over|to|under|beneath|down|through|overboard)\b[^.;!?#]{0,40}\b(?:water|river|sea|race|weir|well|fire|flames?|stove|furnace|"
    r"harbour|lake|deep|waves|mud|bog|marsh|pond|current|canal|gorge|ravine|crevasse|overboard|surf|tide|millpond|stream|abyss|drain|coals|"
    r"grate|range|swamp|quicksand|depths|bay|moat|cistern|shaft|embers|rail|side|bridge|cliff|weir|incinerator|kiln|forge|reclaimer|airlock)\b"
)
_GONE = tuple(
    re.compile(rule, re.IGNORECASE)
    for rule in (
        rf"\b(?:threw|flung|hurled|tossed|dropped|cast|pitched|let|sank|fed|thrust|pushed|put|laid|held|thrown|flung) {_T}[^.;!?#]{{0,30}}?(?:{_SINK}|\boverboard\b)",
        rf"{_T},?[^.;!?#]{{0,60}}? (?:went|fell|dropped|slid|sank|sprang|rolled|flew|slipped|spun|turned|gone|plunged|vanished|skipped|sunk)\b[^.;!?#]{{0,70}}?{_SINK}",
        rf"\b(?:burned|burnt|smashed|destroyed|shattered|crushed|melted down|tore up|broke up) {_T}",
        rf"{_T}(?:[^.;!?#]{{0,40}} and)? (?:was|were|is|had been|has been|being|lay) (?:(?!not\b|never\b|nearly\b|almost\b)[a-z]+ ){{0,3}}?(?:burned|burnt|smashed|destroyed|shattered|crushed|melted|sunk|in pieces|past (?:any |all )?(?:repair|mending)|buried|ashes)\b",
        rf"\b(?:laid|put|placed|slipped|tucked|set|had|nailed|sealed) {_T}[^.;!?#]{{0,25}}? (?:put |laid |buried )?(?:in|into|inside|beside|under|between|with)\b[^.;!?#]{{0,30}}?\b(?:coffin|grave|shroud|casket|tomb|crook of|with @|with (?:him|her)\b|dead)",
        rf"\bburied\b[^.;!?#]{{0,40}} with {_T}|\bburied {_T.replace('<t>', '<t2>')} (?:with|beside|under)\b",
        rf"\b(?:river|sea|water|fire|flames|stove|well|weir|current|tide)\b(?: had| has)? (?:took|taken|had|has|kept|swallowed|closed over|got) {_T}",
        rf"\bopened @[?~]?\d+'s (?:fingers|hand|fist)(?: on {_T})? (?:over|above)\b[^.;!?]{{0,30}}",
        rf"{_T} (?:had )?(?:gone|went|burned|burnt|crumbled|melted) to (?:ash|ashes|flakes|cinders|nothing|pieces)\b",
    )
)
_P = rf"(?P<p>{vocabulary.PERSON})"
_PARTED = tuple(
    re.compile(rule, re.IGNORECASE)
    for rule in (
        rf"{_P}(?!'s)(?:,? [a-z]+){{0,4}}? (?:sold|pawned|gave away|given away|auctioned|gambled away|traded away|traded|parted with|hocked) {_T}",
        rf"{_P}(?!'s)(?: [a-z]+){{0,3}}? let [^.;!?#]{{3,40}}? have {_T}",
        rf"{_P}(?!'s)(?:,? [a-z]+){{0,4}}? (?:gave|handed|lent|passed|bequeathed|presented|left|sent|posted) (?P<q>{vocabulary.PERSON})(?!'s) {_T}",
        rf"{_P}(?!'s)(?:,? [a-z]+){{0,4}}? (?:gave|handed|lent|passed|bequeathed|presented|left|sent|posted|sold|returned|surrendered) {_T}(?: back| over)? to (?P<q>{vocabulary.PERSON})(?!'s)",
        rf"{_P}(?!'s)[^.;!?#]{{0,30}} (?:pressed|put|laid|pushed|folded|slid|slipped|dropped) {_T} (?:into|in|round|around) (?P<q>{vocabulary.PERSON})'s (?:hands?|palm|pocket|neck|lap|fingers?)",
    )
)
_LEFT = re.compile(
    rf"{_P}(?!'s)(?: had)? (?:left|forgot|forgotten) {_T} (?:behind|at home|on the (?:train|boat|bus|ship|tram|platform))\b|"
    rf"\b(?:took|stole|snatched|stolen|taken|seized|confiscated) #(?P<t2>\d+) (?:from|off) (?P<q>{vocabulary.PERSON})(?!'s)",
    re.IGNORECASE,
)
_STOLEN = re.compile(
    rf"\b(?:stole|stolen|made off with|ran off with|confiscated|seized|impounded|(?:thief|thieves|burglars?|robbers?|somebody|someone)(?: had| has)? (?:taken|took)) {_T}",
    re.IGNORECASE,
)
_PUT_IN = re.compile(rf"\b(?:put|thrust|pushed|dropped|threw) {_T} in(?=[.,;])")
_GIFT = re.compile(rf"\b(?:keep|have|take) {_T}", re.IGNORECASE)
_MEANT = re.compile(r"\b(?:yours|for keeps|for good|mean it|for ever|forever)\b", re.IGNORECASE)
_HANDLED = re.compile(rf"\b(?:{vocabulary.PAST}|[a-z]{{3,}}ed)\b[^.;:!?]{{0,45}}$|\b[Ww]ith $", re.IGNORECASE)
_SHOWS = re.compile(
    r"[^.;:!?#]{0,25}? (?:lay|stood|hung|ticked|gleamed|glinted|shone|rested|leaned|struck|chimed|sat|swung|open|in @|on @|round @)\b"
)
_NOT_HANDLED = re.compile(
    r"\b(?:missed|wanted|remember\w*|recall\w*|needed|lost|sold|pawned|described|mentioned|imagined|thought|looked for|asked|promised|offered|knew|buried|gone|missing|without|"
    r"would|could|should|might|never|not|no|if|like|as if|as though|once|dream\w*|empty|had been|where|used|wished|told|for want|another|copy|twin|said|heard of|spoke of|about|"
    r"stolen|search\w*|instead of|than|price|drawing|picture|until|had (?!the\b|an?\b|#|@|out\b)\w+)\b",
    re.IGNORECASE,
)
_FOUND = re.compile(r"\b(?:found|find)\b", re.IGNORECASE)
_REGAINED = re.compile(
    r"\b(?:recover\w*|redeem\w*|fish\w* (?:it )?out|dredg\w*|returned|gave (?:it |#\d+ )?back|brought (?:it |#\d+ )?back|bought (?:it |#\d+ )?back|got (?:it |#\d+ )?back|"
    r"back again|mend\w*|repair\w*|copy|copied|another|replac\w*|new one|twin|fetch\w*|retriev\w*|borrow\w*|lent|handed (?:it |#\d+ )?back|gave it|stole)\b",
    re.IGNORECASE,
)
_ANEW = re.compile(r"\b(?:bought|new|another|second|given|gave|made|got)\b")
_CARD_GONE = re.compile(
    r"^(?:[^:]{0,60} : )?(?:it (?:was|is|has been) |was |is )?(?:(?:then|finally|later) )?(?:buried|sunk|sank|lost|destroyed|burnt|burned|melted|drowned|thrown|smashed|"
    r"broken up|stolen|in the earth|in (?:[@?~\w]+'s |the |a )?(?:coffin|grave|river|sea|lake)|at the bottom of)\b",
    re.IGNORECASE,
)
_APART = 6
_EVENTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """An object as a sentence names it."""

    head: str
    """Its noun."""
    number: str
    """Its number, if it has one."""
    traits: frozenset[str]
    """Words before the noun."""
    owner: str
    """Whose it is said to be: a number of the cast, or `mother` for somebody's mother's."""
    is_named: bool = True
    """Whether the sentence names it, and does not only say `it`."""
    is_known: bool = True
    """Whether it is a certain one: `the watch`, and not `a watch`."""

    def may_be(self, other: Thing) -> bool:
        """Return whether two sentences can mean one object."""
        if self.head != other.head or (self.number and other.number and self.number != other.number):
            return False
        one, two = self.traits & _MATERIALS, other.traits & _MATERIALS
        if one and two and not one & two:
            return False
        return not (self.owner and other.owner and self.owner != other.owner)


def conflicts(passages: Sequence[Passage], roster: Roster) -> Iterator[tuple[Fact, Fact]]:
    """Yield what became of an object, with the place where it is there, or its giver has it, all the same."""
    fates: dict[str, tuple[Fact, Thing]] = {}
    last: Thing | None = None
    reach, path = 0, ""
    for passage in passages:
        if passage.is_flashback:
            continue
        if passage.path != path or passage.index - reach > _PRONOUNS_REACH:
            last = None
        path = passage.path
        text, things = _marked(passage, last, roster)
        if passage.is_card and passage.subject and not roster.is_person(passage.subject):
            fates.update(_of_card(passage, roster))
        if things:
            last, reach = things[-1], passage.index
        if not things and last is None:
            continue
        for thing in {thing.head: thing for thing in things}.values():
            fate = fates.get(thing.head)
            if fate and not _is_same_place(fate[0], passage) and _is_back(fate, thing, text):
                del fates[thing.head]
        yield from _present(passage, text, things, fates, roster)
        for fact, thing in _ends(passage, text, things, last, roster):
            fates.setdefault(thing.head, (fact, thing))
        if len(fates) > _EVENTS:
            return


def _of_card(passage: Passage, roster: Roster) -> dict[str, tuple[Fact, Thing]]:
    """Return the end of the object that a card is about."""
    name = roster.name(passage.subject).lower()
    if not _CARD_GONE.search(passage.text) or re.search(r"\bnot\b|\bnever\b", passage.text):
        return {}
    found = dates.find(passage.text, bare_years=True)
    owner = re.match(r"(.+)['’]s ", name)
    whose = roster.numbered(roster.name(passage.subject)[: owner.end(1)]) if owner else 0
    head = name.split()[-1]
    thing = Thing(head=head, number="", traits=frozenset(), owner=str(whose) if whose else "")
    return {
        head: (_fact(dataclasses.replace(passage, date=found[0] if found else None), thing, "gone", 0, roster), thing)
    }


def _is_back(fate: tuple[Fact, Thing], thing: Thing, text: str) -> bool:
    """Return whether a text tells how an object came back, or of another one."""
    if not fate[1].may_be(thing) or not thing.is_known:
        return not thing.is_known and thing.is_named and _ANEW.search(text) is not None
    found = fate[0].value == "gone" or re.search(r"\b(?:again|at last|had found|shop|stall|market|window)\b", text)
    return bool(_REGAINED.search(text) or (found and _FOUND.search(text)))


def _marked(passage: Passage, last: Thing | None, roster: Roster) -> tuple[str, list[Thing]]:
    """Return a text with `#0` for its first object and so on, and the objects; `it` is the one named last."""
    things: list[Thing] = []

    def note(match: re.Match[str]) -> str:
        if match.re is _THING:
            things.append(_thing(match))
            return f"#{len(things) - 1}"
        return match[0]

    text = _THING.sub(note, passage.text)
    named = len(things)

    def meant(match: re.Match[str]) -> str:
        before = [int(m[1]) for m in re.finditer(r"#(\d+)", text[: match.start()])]
        thing = things[before[-1]] if before and before[-1] < named else last
        if thing is None:
            return match[0]
        things.append(
            Thing(head=thing.head, number=thing.number, traits=thing.traits, owner=thing.owner, is_named=False)
        )
        return f"#{len(things) - 1}"

    return _IT.sub(meant, text), things


def _thing(match: re.Match[str]) -> Thing:
    owner = re.match(r"@[?~]?(\d+)'s(?: (\S+)'s)?", match["det"] or "")
    return Thing(
        head=match["head"].lower(),
        number=re.sub(r"\D", "", match["n"] or ""),
        traits=frozenset(re.findall(r"[a-z-]+", match["adj"].lower())),
        owner=(owner[2] or owner[1]).strip("@?~") if owner else "",
        is_known=bool(match["n"]) or not re.match(r"an?$", match["det"] or "", re.IGNORECASE),
    )


def _ends(
    passage: Passage, text: str, things: Sequence[Thing], last: Thing | None, roster: Roster
) -> Iterator[tuple[Fact, Thing]]:
    """Yield the objects that are lost for good, or that somebody parts with."""
    if text.rstrip("\"'”’").endswith("?"):
        return
    for rule in _GONE:
        for match in rule.finditer(text):
            number = next((group for group in match.groups() if group), None)
            thing = things[int(number)] if number else last
            if (
                thing
                and not facts.is_unreal(_with(passage, text), match.start(), match.end())
                and not _is_meant(text, match)
            ):
                yield _fact(passage, thing, "gone", 0, roster), thing
    for match in (
        _PUT_IN.finditer(text) if re.search(r"\b(?:stove|fire|furnace|grate|flames)\b", passage.context) else ()
    ):
        yield _fact(passage, things[int(match["t"])], "gone", 0, roster), things[int(match["t"])]
    for rule in _PARTED:
        for match in rule.finditer(text):
            number, sure = facts.person(match)
            thing = things[int(match["t"])]
            if (
                sure
                and "~" not in match["p"]
                and not facts.is_unreal(_with(passage, text), match.start(), match.end())
                and not _is_meant(text, match)
            ):
                yield _fact(passage, thing, "parted", number, roster), thing
    for match in _LEFT.finditer(text):
        number, sure = facts.person(match, "p" if match["p"] else "q")
        thing = things[int(match["t"] or match["t2"])]
        if sure and not _is_meant(text, match):
            yield _fact(passage, thing, "parted", number, roster), thing
    for match in _STOLEN.finditer(text):
        thing = things[int(match["t"])]
        if thing.owner.isdigit():
            yield _fact(passage, thing, "parted", int(thing.owner), roster), thing
    for match in _GIFT.finditer(text) if passage.is_spoken and passage.speaker else ():
        if _MEANT.search(passage.context) and not re.search(r"\b(?:i|not|@\d+)\b", text[: match.start()].lower()):
            yield _fact(passage, things[int(match["t"])], "parted", passage.speaker, roster), things[int(match["t"])]


def _is_meant(text: str, match: re.Match[str]) -> bool:
    """Return whether somebody only means to do it, or tells of another time."""
    before = facts.clause(text, match.start()) + match[0]
    return (
        bool(
            re.search(
                r"\b(?:wanted|meant to|tried|going to|hoped|ought|refused|threatened|nearly|almost|will|shall|would|once|years ago|used to|to)\b(?! @)",
                before[: before.find("#") + 1 or None],
            )
        )
        and " had " not in before
    )


def _present(
    passage: Passage, text: str, things: Sequence[Thing], fates: dict[str, tuple[Fact, Thing]], roster: Roster
) -> Iterator[tuple[Fact, Fact]]:
    """Yield each end of an object that is there in a passage all the same."""
    if passage.is_spoken or passage.is_card or not fates:
        return
    for match in re.finditer(r"#(\d+)", text):
        thing = things[int(match[1])]
        fate = fates.get(thing.head) if thing.is_named and thing.is_known else None
        if fate is None or not fate[1].may_be(thing) or _is_same_place(fate[0], passage):
            continue
        clause = facts.clause(text, match.start())
        if _NOT_HANDLED.search(clause) or not (_HANDLED.search(clause) or _SHOWS.match(text, match.end())):
            continue
        if fate[0].passage.is_card and not thing.traits <= _MATERIALS:
            continue
        what, who = fate[0].data
        holder, sure = facts.bearer(_with(passage, text[: match.start()]), match.start(), match.start(), roster)
        if what == "gone" or (sure and holder == who and (not thing.owner.isdigit() or int(thing.owner) == who)):
            del fates[thing.head]
            yield fate[0], _fact(passage, thing, "there", holder, roster)


def _is_same_place(fact: Fact, passage: Passage) -> bool:
    one = fact.passage
    if one.is_card:
        return one.date is not None and (passage.date is None or not one.date.is_before(passage.date))
    return one.order == passage.order and passage.index - one.index < _APART


def _with(passage: Passage, text: str) -> Passage:
    return dataclasses.replace(passage, text=text)


def _fact(passage: Passage, thing: Thing, what: str, who: int, roster: Roster) -> Fact:
    del roster
    shown = " ".join(["the", *sorted(thing.traits & _MATERIALS), thing.head, thing.number]).strip()
    return Fact(
        kind="possession",
        attribute="possession",
        subject=shown,
        key=(thing.head,),
        value=what,
        data=(what, who),
        passage=passage,
    )
