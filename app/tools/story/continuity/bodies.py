"""Bodies: the colours of eyes and hair, the side of a scar or a lost eye, and left- or right-handedness."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from app.tools.story.continuity.language import PERSON, Patterns, classes, words
from app.tools.story.continuity.passages import Fact, Passage, clause, fact, person_of

_LOOKS = Patterns("appearances")
_SIDES = Patterns("sides")


def read(passage: Passage) -> Iterator[Fact]:
    """Yield colours, marks with their side, and the better hand."""
    for rule in _LOOKS.rules("rules"):
        for match in rule.finditer(passage.text):
            who, sure = passage.bearer(match.start(), match.end())
            if passage.roster.is_person(who) and _is_own(passage, match) and _is_lasting(passage, match):
                yield from _coloured(passage, match, who, sure)
    yield from _sides(passage)


def _is_own(passage: Passage, match: re.Match[str]) -> bool:
    """Return whether the colour is not that of an unnamed person: `the boy's eyes were blue`."""
    before = passage.clause(match.start())
    owner = _LOOKS.owner.search(before)
    if _LOOKS.inherited.search(before):
        return True
    is_of_a_thing = _LOOKS.of_a_thing.match(passage.text, match.end()) or before.endswith("its ")
    return not (owner and "@" not in owner[1]) and not _LOOKS.no_look.search(before) and not is_of_a_thing


def _is_lasting(passage: Passage, match: re.Match[str]) -> bool:
    """Return whether a colour is stated as a present fact, not as a guess, change or memory."""
    if "'s " in match[0] or (passage.is_spoken and not _LOOKS.finite.search(passage.text)) or passage.is_unreal(match):
        return False
    if passage.is_card:
        return not _LOOKS.once.match(passage.text, match.end())
    return not _LOOKS.changed.search(passage.clause(match.start()) + match[0]) and not passage.is_earlier


def _coloured(passage: Passage, match: re.Match[str], who: int, sure: bool) -> Iterator[Fact]:
    parts = match.groupdict()
    feature = (parts["f"] or parts.get("f2") or "hair").lower()
    stated = (parts.get("c") or parts.get("c2") or "").lower()
    if not stated:
        stated = next(c for c, likeness in _LOOKS.named("likenesses").items() if likeness.fullmatch(parts["l"].lower()))
    is_beard = "beard" in feature or feature in {"moustache", "whiskers"}
    attribute = "eye_colour" if feature.startswith("eye") else "beard_colour" if is_beard else "hair_colour"
    table = classes("eye_colours" if attribute == "eye_colour" else "hair_colours")
    basic = frozenset(name for word in re.findall(r"[a-z]+", stated) for name in table.get(word, "").split())
    if basic:
        yield fact(passage, attribute, who, stated.replace("gray", "grey").replace("blonde", "blond"), basic, sure)


def is_other_colour(one: Fact, other: Fact) -> bool:
    """Return whether two colours exclude each other."""
    return not one.data & other.data


def _sides(passage: Passage) -> Iterator[Fact]:
    text = _SIDES.elliptic.sub(r"\g<0> \g<part>", _SIDES.follows.sub(r"\g<side> \g<part>", passage.text))
    passage = dataclasses.replace(passage, text=text) if text != passage.text else passage
    for match in _SIDES.sided.finditer(text):
        if not _is_viewed(text, match):
            yield from _marked(passage, match, match["part"])
    if _SIDES.viewed.search(text):
        return
    for match in _SIDES.after.finditer(text):
        yield from _marked(
            passage, match, match["part"] or {"b": "eye", "d": "ear"}.get(match["adj"][0].lower(), "leg")
        )
    for match in _SIDES.of.finditer(text):
        yield from _marked(passage, match, match["part"])
    for match, who, sure in passage.people(_SIDES.handed, _SIDES.hand_field, _SIDES.skilled):
        if not passage.is_unreal(match):
            yield _side(passage, who, sure, "hand", "hand", match["side"])
    if passage.is_card and passage.subject:
        for match in _SIDES.card_handed.finditer(text):
            yield _side(passage, passage.subject, True, "hand", "hand", match[1])


def _is_viewed(text: str, match: re.Match[str]) -> bool:
    """Return whether the clause mentions a mirror, a portrait or the opposite side."""
    start = max(text.rfind(";", 0, match.start()), text.rfind(". ", 0, match.start()), 0)
    end = text.find(";", match.end())
    return _SIDES.viewed.search(text, start, end if end > 0 else len(text)) is not None


def _marked(passage: Passage, match: re.Match[str], named: str) -> Iterator[Fact]:
    text, part = passage.text, classes("body_parts")[named.lower()]
    if _SIDES.other_sense.match(text, match.start("side")):
        return
    mark = _mark(text, match)
    if mark is None:
        yield from _used(passage, match, part)
        return
    who, sure = _bearer(passage, match)
    kind, word = mark
    several = kind in {"scar", "burn", "tattoo", "birthmark"} and _SIDES.several.search(text)
    if passage.is_unreal(match) or not who or several:
        return
    side = match["side"].lower()
    # `His right leg was the good one` makes the left one lame.
    if kind == "defect" and _SIDES.sound.match(word):
        side = "right" if side == "left" else "left"
    if kind == "defect" and part == "face" and _SIDES.sight.search(text):
        part = "eye"
    elif kind not in {"defect", "wound"} and part in {"eye", "ear"}:
        part = "face"
    is_gone = kind == "defect" and _SIDES.gone.match(word) and match["part"] not in words("small_parts")
    yield _side(passage, who, sure, kind, part, side, "gone" if is_gone else "marked")


def _used(passage: Passage, match: re.Match[str], part: str) -> Iterator[Fact]:
    """Yield a hand, an eye or a leg in use, which cannot be the missing one."""
    own = match.groupdict().get("own") or ""
    if part in {"arm", "leg", "eye"} and own.startswith("@") and not passage.is_spoken:
        who, sure = _bearer(passage, match)
        if who and not passage.is_unreal(match) and not passage.is_earlier:
            yield _side(passage, who, sure, "defect", part, match["side"], "used")


def _mark(text: str, match: re.Match[str]) -> tuple[str, str] | None:
    """Return the class and the word of the mark that is nearest to a part of the body in its clause."""
    own = match.groupdict().get("own") or ""
    if own.startswith("@") and _SIDES.left_behind.search(text[: match.start()]):
        return "defect", "lost"
    inside = match[0]
    after = _SIDES.elsewhere.sub("", _SIDES.stop.split(text[match.end() : match.end() + 75], maxsplit=1)[0])
    for stretch in (inside, clause(text, match.start())[-90:], after):
        for kind, rule in _SIDES.named("marks").items():
            found = rule.search(stretch)
            if found and not (kind == "defect" and stretch is not inside and _SIDES.sound.match(found[0])):
                return kind, found[0]
    return None


def _bearer(passage: Passage, match: re.Match[str]) -> tuple[int, bool]:
    own = match.groupdict().get("own") or ""
    inner = own.strip() if own.startswith("@") else next(iter(re.findall(PERSON + "(?='s)", match[0])), "")
    return person_of(inner) if inner else passage.bearer(match.start(), match.end())


def _side(passage: Passage, who: int, sure: bool, mark: str, part: str, side: str, how: str = "marked") -> Fact:
    side = side.lower()
    attribute, value = ("hand", side) if mark == "hand" else ("side", f"{side} ({mark if how == 'marked' else how})")
    return fact(passage, attribute, who, value, (side, how), sure, str(who), mark, part)


def is_other_side(one: Fact, other: Fact) -> bool:
    """Return whether one says left and the other right, or whether a hand is used that is gone."""
    (first, how), (second, how_other) = one.data, other.data
    if "used" in {how, how_other}:
        return first == second and "gone" in {how, how_other}
    return bool(first != second)
