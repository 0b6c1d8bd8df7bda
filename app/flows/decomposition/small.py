"""Prompts and rules for an agent of tier T1: a small model can do little more than choose among words. It gets the
parts of the intent that name a kind of task, and a schema that contains every part and makes every reply a plan
(execution-modes, tier-based step sizing).
"""

# With 135 million parameters and a schema for types alone, the model gave tasks that wait for themselves for 7 of 12
# intents. With a schema made from the intent, all of 16 gave valid plans, and every task found its recipe.

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.domain import plain, task_patterns
from app.flows.decomposition import schema
from app.flows.decomposition.kinds import Kind

_MOST_WORDS = 60
_MOST_PARTS = 40
_MOST_DEPS = 3
_WORD = re.compile(r"[^\W_][\w./-]{0,79}")
_JOINS = frozenset({"and", "or", "then", "also", "please", "the", "a", "an"})
_SPECIAL = re.compile(r"([.^$*+?()\[\]{}|\\])")
_UNSAFE = re.compile(r"[^\w ./&'-]")
_ANY_TEXT = {"type": "string", "minLength": 1, "maxLength": schema.SMALL_CHARACTERS}
_ANY_ENDING = {"type": "string", "pattern": r"^[A-Za-z][A-Za-z0-9 ,'-]{5,89}$"}
_WISH = (
    "Wish: paint door 7 and 8, clean brushes, buy nails\nParts:\n- paint door 7 and 8\n- clean brushes\n- buy nails\n"
)
_EXAMPLES: Sequence[tuple[str, Sequence[int], str]] = (
    ("paint door 7", (), "door 7 is painted"),
    ("paint door 8", (1,), "door 8 is painted"),
    ("clean brushes", (1, 2), "no paint is left in the brushes"),
    ("buy nails", (1,), "the nails are in the box"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of an intent that names a kind of task."""

    phrase: str  # The words of the intent that name it.
    text: str  # From these words to the next part.
    done_when: tuple[str, ...] = ()  # Requirements of the recipes of its kind, before they are done.

    @property
    def tasks(self) -> int:
        """Return the least number of tasks that it means: one for each number in it."""
        return max(1, len([word for word in _words(self.text) if word.isdecimal()]))


def parts(intent: str, kinds: Sequence[Kind]) -> list[Part]:
    """Return the parts of an intent, in its order; of overlapping phrases, the one that begins first, or the
    longest of these, counts.
    """
    named: list[tuple[int, int, Kind]] = []
    # From the left, the longest first: a phrase that overlaps an earlier one is left out.
    for start, end, kind in sorted(_mentions(intent, kinds), key=lambda span: (span[0], -span[1])):
        if not named or start >= named[-1][1]:
            named.append((start, end, kind))
    limits = [*(start for start, _, _ in named[1:]), len(intent)]
    return [
        Part(
            phrase=intent[start:end],
            text=" ".join(intent[start:limit].split()).strip(" ,;."),
            done_when=tuple(kind.get("done_when", ())),
        )
        for (start, end, kind), limit in zip(named, limits, strict=False)
    ][:_MOST_PARTS]


def request(intent: str, found: Sequence[Part], kinds: Sequence[Kind], *, dod: bool = True) -> str:
    """Return the chief's prompt.

    Args:
        dod: Whether it asks for each task's definition of done.
    """
    wish = " ".join(intent.split())
    listed = "".join(f"\n- {part.text}" for part in found) or f"\n- {wish}"
    known = ", ".join(kind["phrases"][0] for kind in kinds if kind["phrases"])
    hint = f"What can be done: {known}.\n" if known and not found else ""
    example = f"{_WISH}Tasks: {_example(dod)}"
    return f"Make a list of tasks from a wish.\n\n{example}\n\n{hint}Wish: {wish}\nParts:{listed}\nTasks:"


def form(found: Sequence[Part], most_tasks: int, *, dod: bool = True) -> dict[str, plain.Json]:
    """Return the schema that makes each reply a plan: numbers in order, dependencies only on earlier tasks, and for
    each part of the intent as many tasks as it means, in its words; without parts, one task in free words.

    Args:
        dod: Whether each task must have a definition of done.
    """
    meant = [part for part in found for _ in range(part.tasks)][:most_tasks]
    texts = [(_words_of(part), _ending_of(part)) for part in meant] or [(_ANY_TEXT, _ANY_ENDING)]
    items = [{"$ref": f"#/$defs/task{number}"} for number in range(1, len(texts) + 1)]
    plan = {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    # Not closed at the top: some services treat a closed schema as one of a stricter kind, which supports no tuples.
    return {
        "type": "object",
        "required": ["tasks"],
        "properties": {"tasks": plan},
        "$defs": {f"task{number}": _task(number, *text, dod=dod) for number, text in enumerate(texts, start=1)},
    }


def _mentions(intent: str, kinds: Sequence[Kind]) -> Iterator[tuple[int, int, Kind]]:
    # Like the router, but with positions; the router's case folding could shift them.
    for kind in kinds:
        for phrase in kind["phrases"]:
            yield from ((*match.span(), kind) for match in re.finditer(re.escape(phrase), intent, re.IGNORECASE))
        for source in kind["expressions"]:
            expression = task_patterns.read(source).expression
            yield from ((*match.span(), kind) for match in expression.finditer(intent))


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(word.rstrip(".-/") for word in _WORD.findall(text)))


def _example(dod: bool) -> str:
    # The first version asked for no definition of done, and had an example without a dependency.
    tasks = [
        {"id": number, "description": text, "deps": list(deps), "dod": done}
        if dod
        else {"id": number, "description": text, "deps": list(deps) if number < len(_EXAMPLES) else []}
        for number, (text, deps, done) in enumerate(_EXAMPLES, start=1)
    ]
    return json.dumps({"tasks": tasks}, separators=(",", ":"))


def _task(number: int, text: plain.Object, ending: plain.Object, *, dod: bool) -> dict[str, plain.Json]:
    earlier = list(range(1, number))
    # All parts have a type: some clients refuse schemas without.
    deps: dict[str, plain.Json] = {
        "type": "array",
        "items": {"type": "integer", "enum": earlier},
        "maxItems": _MOST_DEPS,
    }
    if not earlier:
        deps = {"type": "array", "items": {"type": "integer"}, "const": []}
    fields: dict[str, plain.Json] = {"id": {"type": "integer", "const": number}, "description": text, "deps": deps}
    if dod:
        # If it may name none, so small a model names none.
        fields |= {"deps": deps | ({"minItems": 1} if earlier else {}), "dod": ending}
    return {"type": "object", "additionalProperties": False, "required": list(fields), "properties": fields}


def _words_of(part: Part) -> plain.Object:
    if _UNSAFE.search(part.phrase):
        return _ANY_TEXT
    used = {word.casefold() for word in _words(part.phrase)} | _JOINS
    words = [word for word in _words(part.text) if word.casefold() not in used][:_MOST_WORDS]
    numbers, others = [word for word in words if word.isdecimal()], [word for word in words if not word.isdecimal()]
    some = _one_of(others, "{0,3}")
    return {"type": "string", "pattern": f"^{_literal(part.phrase)}{some}{_one_of(numbers, '?')}{some}$"}


def _ending_of(part: Part) -> plain.Object:
    endings = [ending for ending in part.done_when if not _UNSAFE.search(ending)]
    if not endings:
        return _ANY_ENDING
    one = f"({'|'.join(map(_literal, endings))})"
    return {"type": "string", "pattern": f"^{one}( and {one})?$"}


def _one_of(words: Sequence[str], times: str) -> str:
    return f"( ({'|'.join(map(_literal, words))})){times}" if words else ""


def _literal(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
