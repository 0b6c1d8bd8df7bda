"""Templates: `{{name}}` in texts, replaced in one pass; a value is never read as a template."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from app.domain import json_schemas, json_text, plain, records

RESERVED = ("recipe", "session", "step")  # Names that every step can use, and no variable can have.
APPROVAL = "approval"  # Another such name from schema 1.7 on: the last approval.

APPROVAL_MESSAGE, STAGE = "_approval_message", "stage"
"""Facts of a run with stages, which variables of the same name hide."""

_TOKEN = re.compile(r"\\\{\{|\{\{[ \t]*([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)[ \t]*\}\}|\{\{")
_MOST_NAMED = 50

Part: TypeAlias = plain.Json  # Piece of a prompt: a text, or `{"blob": …}` for one outside the journal.


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A long text that the journal stores as a blob."""

    text: str  # The text.
    blob: records.BlobRef  # Reference to its blob.


Value: TypeAlias = "plain.Json | Kept"  # The value of a variable.


class Undefined(Exception):
    """A name is undefined."""

    def __init__(self, name: str, reason: str, available: tuple[str, ...]) -> None:
        super().__init__(f"{{{{{name}}}}}: {reason}")
        self.name = name  # The name, without braces.
        self.reason = reason  # The reason, in a few words.
        self.available = available  # Variables that exist.

    def message(self, where: str) -> str:
        """Return the message, with the variables that exist (amplifier-recipe-schema, condition expressions)."""
        there = ", ".join(self.available[:_MOST_NAMED]) or "nothing"
        why = f" ({self.reason})" if "." in self.name else ""
        return f"Undefined variable in {where}: {{{{{self.name}}}}}{why}. Available: {there}"


@dataclass(slots=True, kw_only=True)
class Scope:
    """Values of names at one place of a run; inner places see the values set in it."""

    own: dict[str, Value] = field(default_factory=dict)  # Variables that were set here.
    local: frozenset[str] = frozenset()  # Variables that end with this scope: loop variables, facts of a step.
    around: Scope | None = None  # The place around it.
    listed: bool = True  # Whether errors about unknown variables list its variables.
    keeps_outputs: bool = True
    """Whether an output survives this scope even if its name is that of a loop variable (from driver version 3 on)."""

    def inside(self, /, **local: Value) -> Scope:
        """Return a scope inside of this one with its own variables, as for a loop."""
        return Scope(own=dict(local), local=frozenset(local), around=self, keeps_outputs=self.keeps_outputs)

    def set(self, name: str, value: Value) -> None:
        """Set a variable in this scope."""
        self.own[name] = value
        if self.keeps_outputs:
            self.local -= {name}

    def leave(self, inner: Scope) -> None:
        """Take over the variables of an inner scope, except those that end with it."""
        self.own.update({name: value for name, value in inner.own.items() if name not in inner.local})

    def names(self) -> tuple[str, ...]:
        """Return the existing variables, in the order in which they were set."""
        outer = self.around.names() if self.around else ()
        own = [name for name in self.own if name not in RESERVED] if self.listed else []
        return tuple(dict.fromkeys((*outer, *own)))

    def find(self, name: str) -> Value:
        """Return the value of a dotted name."""
        root, *path = name.split(".")
        value = self._root(root, name)
        for part in path:
            try:
                value = json_text.inner(value, part)
            except KeyError:
                kind = "a text" if isinstance(value, Kept) else json_schemas.kind_of(value)
                raise Undefined(name, f"there is no {part!r:.80} in {kind}", self.names()) from None
        return value

    def _root(self, root: str, name: str) -> Value:
        place: Scope | None = self
        while place is not None:
            if root in place.own:
                return place.own[root]
            place = place.around
        raise Undefined(name, "it was never set", self.names())


def parts(template: str, scope: Scope) -> tuple[Part, ...]:
    """Return a text with its variables filled in, as pieces in order; long texts remain in their blobs."""
    made: list[Part] = []
    for piece in _pieces(template, scope):
        if isinstance(piece, Kept):
            made.append({"blob": piece.blob.to_json()})
        elif made and isinstance(made[-1], str):
            made[-1] += piece
        elif piece:
            made.append(piece)
    return tuple(made)


def text(template: str, scope: Scope) -> str:
    """Return a text with its variables filled in."""
    return "".join(written(piece) for piece in _pieces(template, scope))


def filled(template: plain.Json, scope: Scope) -> plain.Json:
    """Return a value with the variables in its texts filled in; a text that is one variable becomes its value."""
    match template:
        case str():
            alone = reference(template)
            return text(template, scope) if alone is None else spoken(scope.find(alone))
        case Mapping():
            return {name: filled(item, scope) for name, item in template.items()}
        case list():
            return [filled(item, scope) for item in template]
    return template


def written(value: Value) -> str:
    """Return the text form of a value: a text itself, any other value as JSON."""
    match value:
        case Kept():
            return value.text
        case str():
            return value
    return plain.encode(value).decode()


def spoken(value: Value) -> plain.Json:
    """Return a value as plain JSON."""
    return value.text if isinstance(value, Kept) else value


def reference(template: str) -> str | None:
    """Return the name of the one variable that a text consists of, or None."""
    found = _TOKEN.fullmatch(template.strip())
    return found[1] if found is not None and found[1] is not None else None


def names(template: str) -> Iterator[str]:
    """Return the names in a text, in order."""
    return (found[1] for found in _TOKEN.finditer(template) if found[1] is not None)


def split(template: str) -> Iterator[tuple[str, str | None]]:
    """Return the pieces of a text in order, each with the variable's name, or None for plain text."""
    end = 0
    for found in _TOKEN.finditer(template):
        yield template[end : found.start()], None
        yield ("{{", None) if found[1] is None else (found[0], found[1])
        end = found.end()
    yield template[end:], None


def own_words(template: str) -> str:
    """Return a text without its variables."""
    return "".join(piece for piece, name in split(template) if name is None)


def replaced(template: str, by: Mapping[str, str]) -> str:
    """Return a text in which each name is replaced by a given text."""
    return _TOKEN.sub(lambda found: "{{" if found[1] is None else by[found[1]], template)


def problem_of(template: str) -> str | None:
    """Return the syntax error of a text, or None."""
    for found in _TOKEN.finditer(template):
        if found[0] == "{{":
            near = template[found.start() : found.start() + 40].split("\n")[0]
            return f"{near!r} names no variable; write {{{{name}}}}, or \\{{{{ for the braces themselves"
    return None


def _pieces(template: str, scope: Scope) -> Iterator[str | Kept]:
    end = 0
    for found in _TOKEN.finditer(template):
        yield template[end : found.start()]
        end = found.end()
        if found[1] is None:
            yield "{{"
        else:
            value = scope.find(found[1])
            yield value if isinstance(value, Kept) else written(value)
    yield template[end:]
