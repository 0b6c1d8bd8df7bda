"""
Possessions: who has a thing, where it is kept, and that it is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from app.tools import dates
from app.tools.continuity import facts, vocabulary
from app.tools.continuity.facts import Fact
from app.tools.continuity.passages import Passage
from app.tools.continuity.roster import Roster

_P = rf"(?P<p>{vocabulary.PERSON})(?!'s)"
_Q = rf"(?P<q>{vocabulary.PERSON})"
_IT = rf"(?P<it>(?:the|{vocabulary.PERSON}'s|that|this|its|a|an)(?: (?!and\b|of\b|to\b|from\b|out\b|in\b|into\b|on\b|with\b|back\b|for\b|at\b|was\b|had\b|that\b|which\b|off\b|over\b)[\w'-]+){{1,4}}?|@\d+)"
_HOLDER = r"(?:pocket|bag|belt|coat|apron|neck|satchel|purse|hand|hands|sleeve|glove|waistcoat|jacket|pack|sash|boot|finger|wrist|breast|throat|bosom|case|hat|shirt|skirt|trousers|cloak|basket|bodice|saddlebag|rucksack|palm|fist|lap|shawl|cuff|knee|knees)"
_WATER = r"(?:water|river|race|sea|weir|well|fire|flames|stove|furnace|harbour|lake|deep|waves|mud|bog|marsh|pond|current|canal|gorge|ravine|crevasse|overboard|surf|tide|millpond|millrace|stream|abyss|drain|dark|hearth|coals|grate|range|swamp|quicksand|depths|bay|moat|cistern|shaft)"
_EVENTS = 60
_GIVES = (
    re.compile(
        rf"{_P}(?:[^.;!?@]{{0,40}})? (?:gave|given|gives|handed|hands|lent|lends|sold|sells|passed|tossed|left|bequeathed|presented|offered up|returned|slipped|brought|posted|sent) {_Q}(?!'s) (?:back )?{_IT}(?=[,.;:!?]| (?:and|to|for|with|on|that|which|before|when|in|at|back|from|as|out|off)\b|$)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P}(?:[^.;!?@]{{0,40}})? (?:gave|given|gives|handed|hands|lent|sold|passed|tossed|left|bequeathed|presented|returned|surrendered|entrusted|delivered|sent|brought|traded|pawned) {_IT}(?: back| over| up| down)?,? (?:to|with) (?:[A-Z][a-z]+ )?{_Q}(?!'s)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P}(?:[^.;!?@]{{0,40}})? (?:put|pressed|laid|placed|pushed|dropped|folded|slid|slipped|gave|closed|tucked) {_IT} (?:into|in|round|around|on|onto) {_Q}'s {_HOLDER}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_Q}(?!'s) (?:took|accepted|bought|got|received|borrowed|stole|inherited|had had|had got|snatched|won|had bought|had stolen) {_IT} from (?:[A-Z][a-z]+ )?{_P}",
        re.IGNORECASE,
    ),
)
_PARTS = (
    re.compile(
        rf"{_P}(?:[^.;!?@]{{0,40}})? (?:pawned|sold|had pawned|had sold|gave away|had given away|traded away|auctioned|gambled away|forfeited|mislaid|had mislaid) {_IT}(?=[,.;:!?]| (?:to|for|at|in|on|and|last|when|that|with|before|because|so|by|three|two|years)\b|$)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P}(?:[^.;!?@]{{0,40}})? (?:left|forgot|had left|had forgotten) {_IT} (?:behind|at home|on the (?:train|boat|bus|ship|tram|platform))\b",
        re.IGNORECASE,
    ),
)
_TAKEN = re.compile(
    rf"\b(?:stole|stolen|made off with|ran off with|confiscated|seized|impounded) (?P<it>(?P<p>{vocabulary.PERSON})'s (?:[\w'-]+ ){{0,2}}?[\w'-]+)(?=[,.;:!?]| (?:from|and|in|on|at|out|off|while|when|that)\b|$)",
    re.IGNORECASE,
)
_LOCKS = re.compile(
    rf"{_P}(?:[^.;!?@]{{0,40}})? (?:locked|locked up|locked away|confiscated|impounded|took charge of) {_IT}(?=[,.;:!?]| (?:in|into|away|up|and)\b|$)",
    re.IGNORECASE,
)
_LOSES = (
    re.compile(
        rf"{_P}(?:[^.;!?]{{0,60}})? (?:put|pushed|stuffed|laid|shoved|poked) {_IT} (?:in|into|on|onto) the (?:[a-z-]+ )?(?:stove|fire|flames|furnace|grate|embers|coals|incinerator|brazier)\b",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_IT} (?:(?!not|never|nearly|almost)[a-z]+,? ){{0,3}}?(?:went|fell|dropped|slid|sank|sprang|rolled|flew|slipped|tumbled|skittered|vanished|disappeared|spun|plunged|dropped|skipped|gone|was gone|was lost|had gone|had sunk)\b[^.;!?]{{0,110}}?\b(?:into|over|under|beneath|in|down|to the bottom|through)\b[^.;!?]{{0,30}}\b{_WATER}\b",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P}(?:[^.;!?]{{0,60}})? (?:threw|flung|hurled|tossed|dropped|cast|pitched|let fall|burned|burnt|lost|sank|fed|thrust|had thrown|had flung|had dropped|had lost|pushed) {_IT} (?:(?!at\b)[^.;!?]){{0,50}}?\b(?:{_WATER})\b",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P}(?:[^.;!?@]{{0,30}})? (?:burned|burnt|smashed|melted down|had melted|broke up|tore up|had burned|had burnt|destroyed|had destroyed) {_IT}(?=[,.;]| (?:and|to|in|on|that|from|of|with|himself|herself|unread)\b)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_IT} (?:was|is|had been|has been|were) (?:burned|burnt|melted|lost|smashed|destroyed|buried|sunk|drowned|stolen|pawned)\b",
        re.IGNORECASE,
    ),
    re.compile(rf"\b(?:buried|burying|buried @[?~]?\d+) (?:[^.;!?@]{{0,20}})?with {_IT}", re.IGNORECASE),
)
_HOLDS = (
    re.compile(
        rf"{_P}(?:[^.;!?]{{0,60}}?)? (?:drew|took|pulled|fished|brought|produced|dug|slid|slipped|tugged|got|unhooked|lifted|had) (?:out )?{_IT} (?:out |up |down )?(?:of|from|out of|in|inside|round|around|on|at|up from) (?:inside |under )?{_Q}'s (?:[\w-]+ ){{0,2}}{_HOLDER}\b",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P}(?:[^.;!?]{{0,40}}?)?,? (?:still |always |also |now )*(?:wore|wears|wearing|carried|carries|carrying|keeps|kept|has|clutched|clutching|fingered|held|twirled|wound|polished|consulted|tucked|put|slipped|dropped|pocketed|patted|swung|loaded|drew|unsheathed|drawn|buckled|strapped|checked|opened|snapped open|played|lit|raised|lifted|jingled|turned|turned over|rattled|felt for|had|saddled|mounted|owned|put up|put on|took out|held up|rowed|launched|moored|steered|pushed|rode|harnessed) {_IT}(?=[,.;:!?]| (?:and|to|in|into|on|round|around|at|against|from|that|which|with|under|between|inside|about|over|back|by|as|out|open|shut|up|again|off)\b|$)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_IT} (?:that |which )?(?:was |lay |hung |swung |sat |still |always |had been |is |safe |warm |heavy |bumped |clinked |open )*(?:in|on|at|round|around|inside|against) {_Q}'s (?:[\w-]+ ){{0,2}}{_HOLDER}\b",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?:with|and) {_IT} (?:still |safe |open )?(?:in|on|at|round|around|inside) {_Q}'s (?:[\w-]+ ){{0,2}}{_HOLDER}\b",
        re.IGNORECASE,
    ),
)
_SEEN = re.compile(
    r"\b(?:propped|laid|set|put|stood|hung|lay|wound|unfolded|read|spread|lifted|opened|closed|took up|looked at|glanced at|peered at|consulted|unrolled|unsealed|pressed|rubbed|held up|drew out|took out) "
    + _IT
    + r"(?=[,.;:!?]| (?:against|on|in|at|beside|under|over|by|from|there|of|and|to|with|where|between|open|across)\b|$)",
    re.IGNORECASE,
)
_SEEN_AFTER = re.compile(
    _IT + r" (?:lay|stood|hung|ticked|gleamed|glinted|shone|rested|leaned|struck|chimed|still hung|still lay)\b",
    re.IGNORECASE,
)
_MEANT = re.compile(
    r"\b(?:wanted|meant|tried|going|hoped|ought|offered|refused|threatened|promised|would|might|if|never|not|will|shall|could)\b",
    re.IGNORECASE,
)
_FOUND = re.compile(rf"{_P} (?:[a-z]+ )?found {_IT} (?:there|on|in|under|beside)\b", re.IGNORECASE)
_ELSEWHERE = re.compile(r"\b(?:window|shop|stall|market|pawn\w*|auction|dealer\w*|again|had found)\b", re.IGNORECASE)
_ABSENT = re.compile(
    r"\b(?:remember\w*|thought|gone|missing|without|miss\w*|search\w*|looked for|buried|would|if|dream\w*|portrait|once|used to|copy|another|like|no longer|place where|empty|years ago)\b",
    re.IGNORECASE,
)
_REGAINED = re.compile(
    r"\b(?:found(?!ed)|find|fetch\w*|recover\w*|return\w*|gave|give|given|gives|took|taken|takes|bought|another|second|new|fished|dredged|back|stole\w*|"
    r"copy|spare|replac\w+|borrow\w*|lent|lend|brought|sent|handed|swapp?\w*|exchang\w*|picked|won|traded|inherit\w*|redeem\w*|retriev\w*|"
    r"dug|got|pass\w*|cut|like it|twin|pair|left)\b",
    re.IGNORECASE,
)
_OWNED = re.compile(
    rf"(?P<p>{vocabulary.PERSON})'s (?:[a-z-]+ )?(?P<i>{vocabulary.PERSON})(?!'s)|(?P<i2>{vocabulary.PERSON})(?!'s) (?:belong(?:s|ed)|had belonged) to (?P<p2>{vocabulary.PERSON})"
)
_KEPT = re.compile(
    rf"(?P<it>(?:the|{vocabulary.PERSON}'s)(?: [\w'-]+){{1,4}}?|@\d+) (?:was (?:always )?kept|is (?:always )?kept|lived|lives|always (?:hung|lay|stood|hangs|lies|stands)|had always (?:hung|lain|stood)) "
    r"(?P<where>(?:in|on|under|behind|beneath|over|above|inside) (?:the|a|an|@[?~]?\d+'s) (?:[\w'-]+ ){0,3}?[\w'-]+)(?=[,.;:]| (?:of|in|by|at|where|with|and)\b|$)",
    re.IGNORECASE,
)
_KEEPS = re.compile(
    rf"{_P} (?:always |still )?(?:kept|keeps|hid|hides|had hidden|locked|stored) {_IT} (?P<where>(?:in|on|under|behind|beneath|over|above|inside) (?:the|a|an|@[?~]?\d+'s) (?:[\w'-]+ ){{0,3}}?[\w'-]+)(?=[,.;:]| (?:of|in|by|at|where|with|and)\b|$)",
    re.IGNORECASE,
)
_GONE = re.compile(
    r"\b(?:in the earth|coffin|buried|sunk|sank|bottom of|lost|destroyed|burnt|burned|melted|stolen|drowned with|in the (?:river|sea|lake)|smashed|broken up)\b",
    re.IGNORECASE,
)
_GONE_FIRST = re.compile(
    r"^(?:it (?:was|is|has been) )?(?:buried|sunk|sank|lost|destroyed|burnt|burned|melted|drowned|thrown)\b",
    re.IGNORECASE,
)
_CARD_FIELD = re.compile(
    r"^(?:where(?:_now|_is_it)?|whereabouts|location|kept|held(?:_by)?|now|present_holder|state|fate|status|history|current_location|where_it_is)$"
)
_OWNER_FIELD = re.compile(
    r"^(?:owner|owned_by|belongs_to|whose|keeper|held_by|holder|carried_by|bearer|worn_by|in_the_hands_of|possession|possessor)$"
)
_COMMON = frozenset(
    "hand hands head face eye eyes arm arms door chair table cup glass plate bread cigarette word words way time place "
    "breath voice look mouth lips hair finger fingers shoulder back bed room house window floor road wine tea coffee food "
    "drink matter thing things rest answer news hat coat coats cap jacket shirt boots boot shoes trousers gloves apron sleeve sleeves scarf "
    "shawl skirt handkerchief pipe candle match matches pen pencil pencils paper papers spoon stick "
    "child baby boy girl man woman weight gaze temper tongue secret job work chin fist feet foot knee knees others other one ones "
    "two same line light mug bowl pot bottle stone stones money coins spectacles belt pocket collar pack end oar oars rope tray "
    "horse reins wheel engine kettle pan cloth towel blanket bucket water fire lid tin name part half piece pieces corner "
    "log logs wood coal peat turf pan loaf dough soup meal meat fish potatoes bacon stew hay straw corn curtain curtains blind gate latch handle page pages note notes message eyebrow eyebrows".split()
)


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """
    Yield who gives, loses and has what, and where it is kept.
    """
    text = passage.text
    if passage.is_card:
        yield from _carded(passage, roster)
    if text.endswith("?") or passage.is_flashback:
        return
    for rule in _GIVES:
        for match in rule.finditer(text):
            yield from _event(passage, roster, match, "give", facts.person(match, "q"))
    for rule in (*_PARTS, _TAKEN):
        for match in rule.finditer(text):
            yield from _event(passage, roster, match, "part", facts.person(match))
    for match in _LOCKS.finditer(text):
        yield from _event(passage, roster, match, "give", facts.person(match))
    for rule in _LOSES:
        for match in rule.finditer(text):
            yield from _event(passage, roster, match, "lose", (0, True))
    for rule in _HOLDS:
        for match in rule.finditer(text):
            holder = "q" if "q" in match.re.groupindex and match["q"] else "p"
            if passage.is_spoken and "p" not in match.re.groupindex:
                continue
            yield from _event(passage, roster, match, "hold", facts.person(match, holder))
    if not passage.is_card and not passage.is_spoken:
        for match in () if _ELSEWHERE.search(text) else _FOUND.finditer(text):
            yield from _event(passage, roster, match, "found", facts.person(match))
        for rule in (_SEEN, _SEEN_AFTER):
            for match in rule.finditer(text):
                if not _ABSENT.search(facts.clause(text, match.start()) + match[0]):
                    yield from _event(passage, roster, match, "seen", (0, True))
    for match in _OWNED.finditer(text):
        number, sure = facts.person(match, "p" if match["p"] else "p2")
        item = int((match["i"] or match["i2"]).strip("@?~"))
        if roster.is_person(number) and roster.entities[item - 1].kind == "item" and not passage.is_spoken:
            yield _fact(
                passage, _head(roster.name(item)), "", ("owner", number), roster.name(number), sure, roster.name(item)
            )
    for rule in (_KEPT, _KEEPS):
        for match in rule.finditer(text):
            yield from _kept(passage, roster, match)


def _carded(passage: Passage, roster: Roster) -> Iterator[Fact]:
    number = passage.subject
    if not number or roster.is_person(number):
        return
    value = passage.text.partition(" : ")[2]
    if not passage.field and _GONE_FIRST.match(passage.text) and not dates.find(passage.text):
        yield _fact(passage, _head(roster.name(number)), "", ("lose", 0), passage.text, True, roster.name(number))
    head = _head(roster.name(number))
    if _CARD_FIELD.match(passage.field) and _GONE.search(value):
        yield _fact(passage, head, "", ("lose", 0), value, True, roster.name(number))
    if _OWNER_FIELD.match(passage.field):
        owner = re.match(rf"(?:the )?({vocabulary.PERSON})", value)
        if owner:
            who = int(owner[1].strip("@?~"))
            yield _fact(passage, head, "", ("owner", who), roster.name(who), True, roster.name(number))


def _event(
    passage: Passage, roster: Roster, match: re.Match[str], what: str, holder: tuple[int, bool]
) -> Iterator[Fact]:
    head, owner = _item(match["it"], roster)
    number, sure = holder
    if not head or facts.is_unreal(passage, match.start(), match.end()):
        return
    if what not in {"lose", "seen"} and not roster.is_person(number):
        return
    if what == "part" and _MEANT.search(passage.text[: match.start("it")]):
        return
    if what == "hold" and re.search(
        r"\b(?:had (?!the\b|an?\b|@|out\b)\w|years ago|once|used to|would\b)",
        passage.text[match.start() : match.start("it")],
    ):
        return
    if re.match(r"(?:a|an) ", match["it"], re.IGNORECASE) and what == "hold":
        return
    yield _fact(passage, head, owner, (what, number), f"{what} {match['it']}", sure, match["it"], roster)


def _kept(passage: Passage, roster: Roster, match: re.Match[str]) -> Iterator[Fact]:
    head, owner = _item(match["it"], roster)
    where = _head(re.sub(vocabulary.PERSON + "'s", "the", match["where"]))
    if head and where and not facts.is_unreal(passage, match.start(), match.end()):
        yield _fact(passage, head, owner, ("kept", where), match["where"], True, match["it"], roster)


def _item(phrase: str, roster: Roster) -> tuple[str, str]:
    """
    Return by which word an item is known again, and whose it is said to be.
    """
    owner = re.match(rf"({vocabulary.PERSON})'s ", phrase)
    named = re.fullmatch(r"@[?~]?(\d+)", phrase)
    if named:
        number = int(named[1])
        return ("", "") if roster.is_person(number) else (_head(roster.name(number)), "")
    words = (
        re.sub(rf"^(?:{vocabulary.PERSON}'s|the|that|this|its|an?) ", "", phrase, flags=re.IGNORECASE).lower().split()
    )
    if not words:
        return "", ""
    head = words[-1].removesuffix("'s")
    if head in _COMMON and len(words) == 1:
        return "", ""
    if head in _COMMON:
        head = f"{words[-2]} {head}"
    return head, owner[1].strip("@?~") if owner else ""


def _head(phrase: str) -> str:
    words = re.findall(r"[a-z][\w-]*", re.split(r"\b(?:of|with|from)\b", phrase.lower())[0])
    return words[-1] if words else ""


def _fact(
    passage: Passage,
    head: str,
    owner: str,
    data: tuple[str, object],
    value: str,
    sure: bool,
    phrase: str,
    roster: Roster | None = None,
) -> Fact:
    shown = re.sub(vocabulary.PERSON, lambda m: roster.name(int(m[0].strip("@?~"))) if roster else m[0], phrase)
    return Fact(
        kind="possession",
        attribute="owner" if data[0] == "owner" else "possession",
        subject=shown,
        key=(head,),
        value=value,
        data=(*data, owner),
        passage=passage,
        is_sure=sure,
    )


def owners_differ(one: Fact, other: Fact) -> bool:
    """
    Return whether a thing is said to be somebody else's.
    """
    return bool(one.data[1] != other.data[1])


def conflicts(told: Sequence[Fact], passages: Sequence[Passage]) -> Iterator[tuple[Fact, Fact]]:
    """
    Yield pairs of what happens to one item: given away, lost or kept in one place, and had by another all the same.
    """
    cards = [fact for fact in told if fact.passage.is_card]
    scenes = sorted((f for f in told if not f.passage.is_card), key=lambda f: (f.passage.order, f.passage.index))
    last: Fact | None = next((fact for fact in cards if fact.data[0] == "lose"), None)
    kept: Fact | None = next((fact for fact in told if fact.data[0] == "kept"), None)
    for fact in scenes[:_EVENTS]:
        what, who, _owner = fact.data
        if what == "kept":
            if kept is not None and kept is not fact and kept.data[1] != who:
                yield kept, fact
            continue
        if (
            last is not None
            and what in {"hold", "seen", "found"}
            and _excludes(last, fact)
            and not _regained(last, fact, passages)
        ):
            yield last, fact
            last = None
        if what in {"give", "lose", "part"}:
            last = fact
        elif what == "hold" and last is not None and last.data[0] != "lose":
            last = None


def _excludes(before: Fact, after: Fact) -> bool:
    what, who, owner = before.data
    if what == "part":
        near = after.passage.order == before.passage.order and after.passage.index - before.passage.index < 3
        return not near and str(who) in {str(after.data[1]), after.data[2]}
    if after.data[0] == "found" or (after.data[0] == "seen" and what != "lose"):
        return False
    _, holder, owner_after = after.data
    if what != "lose" and owner and owner_after and owner != owner_after:
        return False
    if after.passage.order == before.passage.order and after.passage.index - before.passage.index < 3:
        return False
    return bool(what == "lose" or who != holder)


def _regained(before: Fact, after: Fact, passages: Sequence[Passage]) -> bool:
    """
    Return whether something between two events tells how the item changed hands again.
    """
    word = re.compile(rf"\b{re.escape(before.key[0].split()[-1])}s?\b", re.IGNORECASE)
    low, high = (before.passage.order, before.passage.index), (after.passage.order, after.passage.index)
    for passage in passages:
        place = (passage.order, passage.index)
        if low < place <= high and place != low and word.search(passage.text):
            if place == high:
                return bool(
                    re.search(
                        r"\b(?:another|new|second|copy|spare|other|like)\b[^.;]{0,30}" + word.pattern, passage.text
                    )
                )
            if _REGAINED.search(passage.text):
                return True
    return False
