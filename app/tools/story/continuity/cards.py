"""Canon cards in any shape: fields, lists, tables or prose, one subject or several on a card."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from app.tools.story import canon, documents, matching, prose
from app.tools.story.canon import Entity
from app.tools.story.continuity import language

_P = language.Patterns("cards")
_MAX_ALIASES = 16
_FIELD_WORDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a card as a statement."""

    text: str  # `name : value` for a field, else a sentence.
    line: int  # Line in the file.
    field: str  # Name of the field in lower case; empty for prose.


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The canon's description of one subject."""

    entity: Entity  # The subject.
    path: str  # Its file.
    lines: tuple[Line, ...]  # Its lines, in order.


def read(document: documents.Document, names_in_prose: Set[str]) -> list[Card]:
    """Read a card file; headings and fields that are names of the story open a card of their own."""
    main = canon.of_document(document)
    title = _single(cleaned(main.name), document, names_in_prose)
    found: list[tuple[str, int, list[Line]]] = [(title, document.body_line, [])]
    row = ""
    for line, field, text in _statements(document):
        # The first cell of a row may be a name, and the row then a card of its own.
        if field == "#?":
            row = text
            if _is_name(text, names_in_prose) and _is_full_name(text) and not _is_same(cleaned(text), title):
                found.append((cleaned(text), line, []))
                row = ""
            continue
        if field == "#":
            row = ""
            if _is_name(text, names_in_prose) and not _is_same(cleaned(text), title):
                found.append((cleaned(text), line, []))
            continue
        subject = field.strip(" *_") if field else ""
        # `Jonas Pell: the baker of the village` is about a person other than the card's.
        if subject and len(found) >= 1 and _is_full_name(subject) and _is_name(subject, names_in_prose):
            found.insert(0, (cleaned(subject), line, [Line(text=part, line=line, field="") for part in _parts(text)]))
            continue
        if row and field:
            field, text = row, f"{field} {text}" if "side" in field.lower() and "side" not in text.lower() else text
        found[-1][2].extend(
            Line(
                text=f"{label} : {value}" if label else value,
                line=line,
                field=documents.name_of(label) if label else "",
            )
            for label, value in _paired(field, text)
        )
    return [
        _card(document, main if name == title else None, name, lines)
        for name, _, lines in found
        if lines or name == title
    ]


def cleaned(name: str) -> str:
    """Return the name that a heading or title contains."""
    bare = _P.prefix.sub("", _P.brackets.sub("", name)).strip(' *_#"“”')
    if _P.slug.fullmatch(bare) and re.search("[_-]", bare):
        bare = " ".join(word if word in {"and", "of", "the"} else word.capitalize() for word in re.split("[_-]", bare))
    turned = _P.surname_first.fullmatch(bare)
    bare = f"{turned[2].strip()} {turned[1]}" if turned else bare
    bare = " ".join(word.capitalize() if word.isupper() and len(word) > 2 else word for word in bare.split())
    return _P.tail.sub("", bare).strip(' *_#"“”') or name


def _single(title: str, document: documents.Document, names_in_prose: Set[str]) -> str:
    """Return a card's title, or, if the title names two people, the first name in its text."""
    if " and " not in title and not title.endswith("s"):
        return title
    text = " ".join(text for _, text in documents.body(document)[:3])
    found = [m[0] for m in _P.two_names.finditer(text) if _is_name(m[0], names_in_prose)]
    return found[0].rstrip(".,") if found and " and " in title else title


def _is_same(one: str, other: str) -> bool:
    return one.lower().removeprefix("the ") == other.lower().removeprefix("the ")


def _statements(document: documents.Document) -> Iterator[tuple[int, str, str]]:
    """Yield line, field and text: `#` as field of a heading, none for prose."""
    for name, value in document.front_matter.items():
        text = value if isinstance(value, str) else ", ".join(value)
        yield document.front_matter_lines[name], name.replace("_", " "), text
    headings = {heading.line: heading.text for heading in documents.headings(document)}
    header: list[str] = []
    listed = ""
    prose_lines: list[tuple[int, str]] = []
    body = documents.body(document)
    for position, (line, text) in enumerate([*body, (len(document.lines) + 1, "")]):
        row = _P.row.match(text)
        item = documents.ITEM.match(text)
        field = None if row else documents.field_of(item[2] if item else text, line)
        # If a colon follows many words, the line is a sentence, not a field.
        if field and len(field.label.split()) > _FIELD_WORDS:
            field = None
        # Sentences cross line ends, so prose lines are gathered until another kind of line begins.
        if (row or item or field or not text.strip() or line in headings) and prose_lines:
            yield from _sentences(prose_lines)
            prose_lines = []
        if line in headings:
            header, listed = [], ""
            yield line, "#", headings[line]
        elif row:
            cells = [cell.strip(" *_") for cell in row[1].split("|")]
            if _P.rule_row.match(text):
                continue
            following = body[position + 1][1] if position + 1 < len(body) else ""
            if _P.rule_row.match(following) and "-" in following:
                header = cells
                continue
            yield from _row(line, header, cells)
        elif field:
            listed = "" if field.value else field.label
            if field.value:
                yield line, field.label, field.value
        elif item and listed:
            yield line, listed, item[2].strip()
        elif text.strip():
            prose_lines.append((line, item[2] if item else text.strip().removeprefix("> ")))
            if item:
                yield from _sentences(prose_lines)
                prose_lines = []


def _row(line: int, header: Sequence[str], cells: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    if len(cells) == 2 and (
        not header or header[0].lower() in {"", "field", "attribute", "fact", "what", "key"} or len(header) == 2
    ):
        yield line, cells[0], cells[1]
        return
    if len(cells) > 1:
        yield line, "#?", cells[0]
        for name, value in zip(header[1:] or [""] * (len(cells) - 1), cells[1:], strict=False):
            if value:
                yield line, name, value


def _sentences(lines: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    document = documents.parse("\n".join(text for _, text in lines))
    for paragraph in prose.paragraphs(document):
        for sentence in paragraph.sentences:
            yield lines[min(sentence.line, len(lines)) - 1][0], "", sentence.text


def _paired(label: str, value: str) -> list[tuple[str, str]]:
    """Return `Hair, eyes: yellow; blue` as two fields."""
    labels, values = re.split(r"\s{0,2}(?:,|/|&|\band\b)\s{0,2}", label), re.split(r"\s{0,2}[;,/]\s{0,2}", value)
    return list(zip(labels, values, strict=True)) if 1 < len(labels) == len(values) else [(label, value)]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(";") if part.strip()]


def _is_name(text: str, names_in_prose: Set[str]) -> bool:
    words = [word for word in re.findall(r"[^\W\d_][\w'’-]*", cleaned(text)) if word[0].isupper() and word != "The"]
    known = [word for word in words if word in names_in_prose]
    return bool(words) and bool(known) and _P.full_name.fullmatch(cleaned(text)) is not None


def _is_full_name(text: str) -> bool:
    return sum(word[:1].isupper() for word in text.split()) > 1


def _card(document: documents.Document, entity: Entity | None, name: str, lines: Sequence[Line]) -> Card:
    stated = entity or Entity(name=name, aliases=(name,), kind="unknown", pronoun=None, facts=(), document=document)
    named = {line.field for line in lines}
    text = " ".join(line.text for line in lines)
    kind = stated.kind
    if kind == "unknown":
        kind = _kind(name, named, text)
    whole = re.match(rf"((?:[A-Z][\w'’-]{{1,20}} ){{1,2}}{re.escape(name)})\b", text) if " " not in name else None
    person = kind in {"character", "unknown"}
    aliases = [name, *(alias for alias in stated.aliases if alias != stated.name), *_stated_aliases(lines)]
    if whole:
        aliases += [whole[1], whole[1].split()[0]]
    if person:
        aliases += [*_parts_of_name(name), *_roles(lines)]
    title, _, bare = name.partition(" ")
    # A rank is a separate fact, and the name is stored without it.
    if title.lower() in language.words("ranks") and bare:
        aliases = [bare, *(alias for alias in aliases if not alias.lower().startswith(title.lower()))]
        lines = [
            Line(text=f"rank : {title.lower()}", line=lines[0].line if lines else document.body_line, field="rank"),
            *lines,
        ]
    entity = dataclasses.replace(
        stated,
        name=name,
        kind=kind,
        aliases=tuple(dict.fromkeys(alias.strip() for alias in aliases if _can_name(alias)))[:_MAX_ALIASES],
        pronoun=stated.pronoun or (_pronoun(text, lines) if person else None),
    )
    return Card(entity=entity, path=document.path, lines=tuple(lines))


def _can_name(alias: str) -> bool:
    bare = alias.strip().lower()
    return (
        len(bare) > 1
        and not bare.endswith(",")
        and bare not in matching.STOPWORDS
        and bare not in {"the man", "the woman", "the boy", "the girl", "the child"}
    )


def _kind(name: str, named: Set[str], text: str) -> canon.EntityKind:
    if re.match(r"[Tt]he [A-Z]\w+s$", name):
        return "thing"
    if re.search(r"['’]s [A-Z]\w+$", name):
        return "item"
    bases = {name.split("_in_")[0] for name in named}
    if bases & language.words("personal"):
        return "character"
    if bases & language.words("place_words"):
        return "place"
    if bases & language.words("thing_words"):
        return "item"
    words = set(re.findall(r"[a-z]+", text.lower()))
    return "character" if words & {"he", "she", "him", "woman", "man"} else "unknown"


def _stated_aliases(lines: Sequence[Line]) -> Iterator[str]:
    for line in lines:
        value = line.text.partition(" : ")[2]
        if line.field in language.words("alias_fields"):
            for part in documents.split_list(value):
                match = re.match(r"[\"“‘']?((?:the [a-z]|[A-Z])[\w'’ -]{1,40})", part)
                if match:
                    yield re.split(r" (?:at|in|by|to|among|when|only|for) ", match[1])[0].strip(" '\"”’")
        yield from (match[1] for match in _P.called.finditer(line.text))


def _parts_of_name(name: str) -> Iterator[str]:
    words = [word for word in re.sub(r"[\"“‘][^\"”’]{1,30}[\"”’]", "", name).split() if word]
    quoted = re.findall(r"[\"“‘']([A-Z][\w-]{1,20})[\"”’']", name)
    yield from quoted
    while len(words) > 1 and words[0].strip(".").lower() in language.words("titles"):
        words = words[1:]
        yield " ".join(words)
    if len(words) > 1 and words[0][0].isupper() and words[0] not in {"The", "St", "Saint"} and len(words[0]) > 1:
        yield words[0]
        if words[-1][0].isupper():
            yield words[-1]


def _first_prose(lines: Sequence[Line]) -> str:
    first = next((line.text for line in lines if not line.field), "")
    head = re.split(r"[,;.]", first)[0].strip()
    head = head[:1].lower() + head[1:]
    noun = re.sub(r"^(?:the|an?) ", "", re.split(r" (?:of|at|in|to|for|on|who|from|with) ", head)[0])
    last = noun.split()[-1] if noun.split() else ""
    if last in language.classes("kinship"):
        return ""
    known = last in language.words("trades", "ranks", "male_words", "female_words", "titles")
    person = known or _P.trade_ending.search(last)
    return head if person and len(noun.split()) < 4 else ""


def _roles(lines: Sequence[Line]) -> Iterator[str]:
    """Yield roles such as `the landlady` and `the captain of the ringers` that a card states for its subject."""
    stated = [line.text.partition(" : ")[2] for line in lines if line.field in language.words("role_fields")]
    for text in [*stated, _first_prose(lines)]:
        first = re.split(r"[,;(.]| at | in | for | to | who | since | on ", text)[0].strip()
        first = first[:1].lower() + first[1:]
        match = _P.role.match(first)
        if match and "'" not in first and "’" not in first:
            words = match[1].split()
            if words[0].endswith("s") and len(words) > 1:
                continue
            yield f"the {words[-1]}"
            if len(words) > 1:
                yield f"the {match[1]}"
            if match[2] and match.end() == len(first):
                yield f"the {match[1]} {match[2]}"


def _pronoun(text: str, lines: Sequence[Line]) -> str | None:
    for line in lines:
        if line.field in {*language.words("role_fields"), *language.words("kin_fields"), "gender", "sex", ""}:
            value = re.split(r"[,;.]", line.text.partition(" : ")[2] or line.text)
            for part in (part.replace("-in-law", "") for part in value):
                bare = re.sub(r"\b(?:of|to) .*|\w+['’]s? ", "", part.lower()).split()[:4]
                kin = re.sub(r"^.*['’]s ", "", part.lower()).split()[:3]
                for word in [*bare, *kin] if line.field else kin[-1:] if "'" in part or "’" in part else bare:
                    if word in language.words("female_words") | {"female"} or re.search(r"[trd]ress$|stress$", word):
                        return "she"
                    if word in language.words("male_words") | {"male"}:
                        return "he"
    words = re.findall(r"[a-z]+", text.lower())
    he = sum(word in {"he", "his", "him", "himself"} for word in words)
    she = sum(word in {"she", "her", "hers", "herself"} for word in words)
    # A card mentions others, too, so only a clear majority counts.
    if he + she > 1 and min(he, she) * 2 <= max(he, she):
        return "he" if he > she else "she"
    return None
