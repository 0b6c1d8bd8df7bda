"""Naming: by which words a text means somebody: titles, offices, short forms of first names."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from app.tools.story import documents, names
from app.tools.story.canon import Entity
from app.tools.story.continuity import vocabulary
from app.tools.story.continuity.cards import TITLES

_NAMED = r"(?:(?:[A-Z][a-z]{1,3}|Miss|Father|Madame|Senhora?|Señora?)\.? )?(?:[A-Z][\w'’-]+ ){0,2}[A-Z][\w'’-]+"
_ROLE = r"(?:[a-z]+[- ])?[a-z]{3,15}"
_APPOSED = (
    re.compile(rf"\b[Tt]he (?:old |young |new |great )?(?P<r>{_ROLE}),? (?P<n>{_NAMED})\b(?!['’]s)"),
    re.compile(rf"\b(?P<n>{_NAMED}),? (?:who (?:is|was) )?(?:is |was )?(?:the|our) (?P<r>{_ROLE})\b(?= of\b| at\b| to\b| here\b|[,.;])"),
    re.compile(rf"\b(?:[Hh]is|[Hh]er|[Mm]y|[\w]+['’]s) (?P<r>widow|wife|husband|clerk|deputy|steward|housekeeper),? (?P<n>{_NAMED})\b(?!['’]s)"),
)  # fmt: skip
OFFICES = (
    vocabulary.TRADES
    | vocabulary.RANKS
    | frozenset(
        "abbess abbot assistant bailiff beadle boss butler captain chairman chief clerk coachman colonel commander commodore computer "
        "constable coroner curate deputy director doctor duke editor emperor empress envoy factor foreman founder governor "
        "guard guide hangman harper headman heir herald hermit host hostess jailer judge king landlady landlord legate "
        "lieutenant magistrate major manager marshal mate mayor minister officer orphan overseer owner parson pilot pope president "
        "priest prince princess prior prioress prisoner professor prompter queen quartermaster rector reeve regent secretary sergeant "
        "sexton sheriff skipper squire steward superintendent surgeon tenant treasurer vicar viceroy victim warden widow widower witch "
        "witness".split()
    )
)
"""What somebody is called by instead of a name."""
_SURE_ENDS = ("man", "woman", "ist", "tress", "smith", "wright", "maid", "monger", "keeper", "master", "maker")
_OFFICE_ENDS = (*_SURE_ENDS, "er", "or", "ess", "ward", "ant", "ian")
_NO_OFFICE = frozenset(
    "elder younger other former latter river water winter summer flower tower corner letter paper number member "
    "manner chamber border quarter order matter lover sinner stranger speaker older harbour summer dinner supper "
    "lower upper inner outer never under after over however steamer schooner ever her".split()
) | frozenset(vocabulary.KINSHIP)
_ABBREVIATED = {
    "dr": "doctor",
    "prof": "professor",
    "capt": "captain",
    "lt": "lieutenant",
    "sgt": "sergeant",
    "rev": "vicar",
}
_SHORT = {
    long: short.split()
    for long, short in (
        pair.split(": ")
        for pair in (
            "alexander: alec alex sandy|alfred: alf alfie|andrew: andy|anthony: tony|benjamin: ben benny|catherine: kate kitty cathy|"
            "charles: charlie|charlotte: lottie|christopher: kit chris|constance: connie|daniel: dan danny|david: davy dave|"
            "dorothy: dolly dot|edmund: ned ted|edward: ned ted eddie ed|eleanor: nell nellie|elizabeth: beth bess lizzie eliza betty liz|"
            "ellen: nell nellie|emily: em|frances: fanny|francis: frank|frederick: fred freddie|george: georgie|harold: harry hal|"
            "helen: nell|henry: harry hal|isabella: bella|jacob: jake|james: jim jamie jem jimmy|jane: jenny|jennifer: jenny|john: jack johnny|"
            "joseph: joe joey|josephine: jo josie|katherine: kate kitty kathy kit|lawrence: larry|leonard: len|louisa: lou|lucy: lu|"
            "margaret: meg peg peggy maggie madge|martha: patty mattie|mary: polly molly may|matilda: tilly|matthew: matt|michael: mick mike|"
            "nathaniel: nat|nicholas: nick|patrick: pat paddy|peter: pete|philip: pip phil|philippa: pippa|rebecca: becky|richard: dick rick|"
            "robert: bob rob robin bobby bert|rosalind: rosie|samuel: sam sammy|sarah: sally|stephen: steve|susan: sue susie|theodore: ted|"
            "theresa: tess|thomas: tom tommy|timothy: tim|tobias: toby|victoria: vicky|walter: wat walt|wilhelmina: mina|william: will bill billy willy wm|zachary: zach"
        ).split("|")
    )
}
_HE = frozenset(
    "adam alan albert alexander alfred ambrose andrew anton anthony arthur ben benjamin bernard bram bruno carl charles christopher "
    "conrad daniel david dennis dominic duncan edgar edmund edward edwin emil eric ernest ewan felix ferdinand francis frank "
    "frederick gabriel george gerald gideon gilbert giles gregory harold harry henry herbert hugh hugo ian isaac ivan ivor jack jacob "
    "james jan jasper jethro joe john jonas jonathan joseph josef julian karl klaus konrad kurt lukas matthis gerrit henrik hans hendrik jakob johann johannes joachim joss juan jose josé luis pedro pierre rafael ricardo stefan sven tomas tomé tomás viktor wilhelm xavier yuri aaron lars leo leon leonard lewis louis lucas luke marcus mark "
    "martin matthew max michael miles nathan nathaniel ned nicholas nils noah oliver oscar oskar otto owen patrick paul peter philip "
    "ralph ray raymond reuben richard robert robin roger roland rolf ruben rupert samuel sebastian silas simon stephen steven "
    "theodore thomas tobias tom toby tristan victor vincent walter will william wilfred joshua luca ezra elijah noah ira asa".split()
)
_SHE = frozenset(
    "abigail agnes alice alison ann anne astrid audrey beatrice bess beth bridget caroline catherine charlotte christine clare "
    "constance deborah dorothy edith eileen eleanor elizabeth ellen elsie emily esther ethel eunice eve evelyn fay florence frances "
    "freya gertrude grace greta gwen hannah harriet hazel helen hester hilary imogen ines ingrid irene iris isabel isobel ismay jane jean "
    "jennifer jess joan josephine joyce judith june karen kate katherine kathleen kirsten laurel lily liesel lorna louise lucy lynn "
    "mabel madge margaret margery marian marie marion marjorie mary maud megan meg mercy mildred miriam molly muriel nan nancy nell nora "
    "olive pearl peggy penelope phoebe polly prudence rachel rose rosalind rosemary ruth sarah sibyl sigrid sophie susan sylvie "
    "tamsin violet vivian winifred yvonne inês isolde marit ilse astrid dagmar solveig".split()
)


def pronoun_of(name: str) -> str | None:
    """Return the pronoun that a first name suggests: those of a common list, or `-a` for a woman."""
    words = name.lower().split()
    if any(word in _ABBREVIATED or word.strip(".") in {"mr", "sir", "lord"} for word in words[:1]):
        words = words[1:]
    for word in words[:1]:
        if word in _HE or word in _SHE:
            return "he" if word in _HE else "she"
        if len(words) > 1 and len(word) > 3 and word.endswith(("a", "ette", "elle", "ine")):
            return "she"
    return None


def titles(seen: Iterable[names.Sighting], small: Iterable[str]) -> frozenset[str]:
    """Return the words that stand as titles before names: known ones, and `Overseer`, if an overseer is also written
    small.
    """
    written = frozenset(small)
    followed: dict[str, set[str]] = {}
    for sighting in seen:
        title, _, rest = sighting.name.partition(" ")
        if rest:
            followed.setdefault(title.lower().strip("."), set()).add(rest)
    return TITLES | {title for title in followed if title in written and is_office(title)}


def is_office(word: str, *, strict: bool = False) -> bool:
    """Return whether a word names somebody by what they are: `bailiff`, `ferryman`, `granary keeper`.

    Args:
        word: One word, or two.
        strict: Whether `-er` alone does not show it.
    """
    last = re.split("[ -]", word)[-1]
    if last in _NO_OFFICE or last in TITLES & _NO_OFFICE:
        return False
    return (
        last in OFFICES or word in OFFICES or (len(last) > 4 and last.endswith(_SURE_ENDS if strict else _OFFICE_ENDS))
    )


def with_offices(entities: Sequence[Entity], texts: Sequence[documents.Document]) -> list[Entity]:
    """Let `the vicar` mean whom a text introduces as `the vicar, Mr Lisle`, `Lisle, the vicar` or `Lisle was the vicar
    of`.
    """
    by_alias = _bearers(entities)
    bearers: dict[str, set[str]] = {}
    for document in texts:
        for line in document.lines:
            for rule in _APPOSED:
                for match in rule.finditer(line):
                    owner = _owner(match["n"], by_alias)
                    known = is_office(match["r"], strict="," not in match[0])
                    if owner and owner.kind in {"character", "unknown"} and known:
                        for role in {match["r"], match["r"].split()[-1]}:
                            bearers.setdefault(role, set()).add(owner.name)
    for entity in entities:
        for alias in entity.aliases:
            if alias.startswith("the ") and alias[4:5].islower():
                bearers.setdefault(alias[4:], set()).add(entity.name)
    return _added(entities, {f"the {role}": owners for role, owners in bearers.items()})


def with_titles(entities: Sequence[Entity], seen: Sequence[names.Sighting], known: frozenset[str]) -> list[Entity]:
    """Let `the Major` mean Major Voss where there is no other major, and `Overseer Pruitt` the only Pruitt."""
    bearers: dict[str, set[str]] = {}
    by_alias = _bearers(entities)
    family: dict[str, list[Entity]] = {}
    for entity in entities:
        if " " in entity.name and entity.kind in {"character", "unknown"}:
            family.setdefault(entity.name.split()[-1], []).append(entity)
    for title, pronoun in _ADDRESSES.items():
        for surname, members in family.items():
            fitting = [member for member in members if (member.pronoun or pronoun_of(member.name)) == pronoun]
            if len(fitting) == 1 and len(members) > 1:
                bearers.setdefault(f"{title} {surname}", set()).add(fitting[0].name)
    for sighting in seen:
        title, _, rest = sighting.name.partition(" ")
        bare = title.lower().strip(".")
        if rest and bare in known and bare not in _FAMILIAR:
            owner = _owner(rest, by_alias)
            stated = owner.name if owner else "?"
            for word in (title, bare, _ABBREVIATED.get(bare, bare)):
                bearers.setdefault(f"the {word}", set()).add(stated)
    return _added(entities, bearers)


def with_short_names(entities: Sequence[Entity], seen: Sequence[names.Sighting]) -> list[Entity]:
    """Let `Billy Sayers` mean William Sayers, and `Billy` the only William."""
    written = {sighting.name for sighting in seen}
    bearers: dict[str, set[str]] = {}
    for entity in entities:
        first, _, rest = entity.name.partition(" ")
        for short in _SHORT.get(first.lower(), ()):
            for alias in (f"{short.capitalize()} {rest.split()[-1]}" if rest else "", short.capitalize()):
                if alias in written:
                    bearers.setdefault(alias, set()).add(entity.name)
    return _added(entities, bearers)


def _bearers(entities: Sequence[Entity]) -> dict[str, Entity]:
    """Return who is meant by each name that only one bears."""
    count = Counter(alias for entity in entities for alias in set(entity.aliases))
    return {
        alias: entity for entity in entities for alias in entity.aliases if count[alias] == 1 and alias[:1].isupper()
    }


def _owner(name: str, by_alias: Mapping[str, Entity]) -> Entity | None:
    words = name.split()
    return next((by_alias[part] for start in range(len(words)) if (part := " ".join(words[start:])) in by_alias), None)


def _added(entities: Sequence[Entity], bearers: Mapping[str, set[str]]) -> list[Entity]:
    """Return the entities with the further aliases that only one of them bears."""
    further: dict[str, list[str]] = {}
    taken = Counter(alias for entity in entities for alias in set(entity.aliases))
    for alias, owners in bearers.items():
        if len(owners) == 1:
            further.setdefault(next(iter(owners)), []).append(alias)
    shared = {alias for alias, owners in bearers.items() if len(owners) > 1}
    return [
        dataclasses.replace(
            entity,
            aliases=tuple(
                dict.fromkeys(
                    [
                        *(a for a in entity.aliases if a not in shared or a == entity.name),
                        *(a for a in further.get(entity.name, ()) if not taken[a] or a in entity.aliases),
                    ]
                )
            ),
        )
        for entity in entities
    ]


_ADDRESSES = {"Mr": "he", "Sir": "he", "Lord": "he", "Mrs": "she", "Miss": "she", "Ms": "she", "Lady": "she"}
_FAMILIAR = frozenset(
    "mr mrs ms miss old young aunt uncle father mother sister brother granny grandmother grandfather sir".split()
)
