"""YAML texts from outside, read strictly: YAML 1.2, one document of plain JSON values, every fault with path and line.

A library parses only the syntax. This module decides on the values of scalars and on all limits, so that no tag,
alias or number can become anything but a JSON value of bounded size.
"""

# Two languages are YAML, from untrusted files: aliases that expand to gigabytes, nesting that exhausts the stack, tags
# that build objects, repeated keys. `on:` must be a word, as in YAML 1.2; PyYAML's values are those of 1.1.
#
# So only PyYAML's event stream is used, from its parser in C. This module interprets the events, without recursion,
# by the core schema of 1.2. `ruamel.yaml` reads 1.2 itself, but in pure Python took a hundred times as long (49 ms
# against 0.43 ms for 8 kB), which would hold the event loop. Price: new syntax of YAML 1.2 is not read; the core
# install has a package with an extension, without which the parser in Python is used.

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app import errors
from app.domain import json_text, plain

if TYPE_CHECKING:
    from yaml import events

MAX_CHARACTERS = 256 * 1024  # Longest text that is read: the slow parser takes a second or two for it.
MAX_DEPTH = json_text.MAX_DEPTH  # Mappings and lists inside one another, aliases followed.
MAX_WEIGHT = 1024 * 1024  # Size of the value with every alias written out: its characters, and a few for each value.

_VALUE_WEIGHT = 16
_MAX_DIGITS = 64
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")
_MAX_FLAWS = 50
_MOST_LISTED = 200
_SHOWN_CHARACTERS = 80

_NULLS = ("", "~", "null", "Null", "NULL")
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_PIECE = re.compile(r'\.[^.\[]+|\[[0-9]+\]|\["(?:[^"\\]|\\.)*"\]')
_UNFIT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HINTS = {
    "mapping values are not allowed": "put a text that contains a colon and a blank in quotes",
    "cannot start any token": "put a text that begins with this character in quotes",
    "did not find expected": "compare the indentation, brackets and quotes of this line with those before it",
}
"""Advice for frequent mistakes, by words of the parser."""
_BYTE_ORDERS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


@dataclass(slots=True, eq=False)
class _Node:
    value: plain.Json
    line: int
    weight: int
    below: dict[str, _Node] = field(default_factory=dict)
    height: int = 0
    keyed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The content of a text."""

    value: plain.Json  # The value, as plain JSON.
    root: _Node = field(repr=False)  # Positions of its parts in the text.

    def line_of(self, path: str) -> int:
        """Return the line, from 1, of a JSON path, or of the nearest existing part around it."""
        node = self.root
        for piece in _PIECE.findall(path):
            if piece not in node.below:
                break
            node = node.below[piece]
        return node.line

    def placed(self, flaws: Iterable[errors.Flaw]) -> list[errors.Flaw]:
        """Return flaws of the value with their lines."""
        return [dataclasses.replace(flaw, line=self.line_of(flaw.path)) for flaw in flaws]


def read(source: str | bytes) -> Document:
    """Return the document in a text.

    Raises:
        errors.InputRefused: with every flaw: `too_large`, `not_utf8`, `bad_character`, `syntax`, `several_documents`,
            `unsupported_version`, `too_deep`, `repeated_name`, `name_not_text`, `merge_key`, `tag`, `bad_number`,
            `nul_character`, `unknown_alias`, `recursive_alias`.
    """
    text = _text(source)
    if len(text) > MAX_CHARACTERS:
        raise _refused(_flaw("$", "too_large", f"is longer than {MAX_CHARACTERS} characters"))
    unfit = _UNFIT.search(text)
    if unfit is not None:
        message = f"holds the character U+{ord(unfit[0]):04X}, which YAML does not allow"
        raise _refused(_flaw("$", "bad_character", message, text.count("\n", 0, unfit.start()) + 1))
    composer = _Composer()
    root = _composed(composer, text)
    if composer.flaws:
        raise _refused(*composer.flaws)
    return Document(value=plain.plain(root.value), root=root)


def valid(source: str, flaws: Callable[[plain.Json], Iterable[errors.Flaw]], what: str) -> plain.Json:
    """Return the value of a text without flaws; arguments and errors are those of `sound`."""
    return sound(source, flaws, what).value


def sound(source: str, flaws: Callable[[plain.Json], Iterable[errors.Flaw]], what: str) -> Document:
    """Return the document of a text without flaws.

    Args:
        flaws: Returns the flaws of the value.
    """
    try:
        document = read(source)
    except errors.InputRefused as error:
        raise errors.RecipeInvalid(f"{what} is not valid: {error.message}", flaws=error.flaws) from error
    if document.value is None and document.root.weight <= _VALUE_WEIGHT:
        empty = _flaw("$", "wrong_type", "is empty", 1)
        raise errors.RecipeInvalid(f"{what} is not valid: the text is empty", flaws=[empty])
    found = document.placed(dict.fromkeys(itertools.islice(flaws(document.value), _MOST_LISTED)))
    if found:
        found.sort(key=lambda flaw: flaw.line or 0)
        first = found[0]
        message = f"{what} is not valid: {first.path} {first.message} (line {first.line})"
        raise errors.RecipeInvalid(message, flaws=found)
    return document


def _text(source: str | bytes) -> str:
    if isinstance(source, str):
        return source.removeprefix("\ufeff")
    if len(source) > 4 * MAX_CHARACTERS:
        raise _refused(_flaw("$", "too_large", f"is longer than {MAX_CHARACTERS} characters"))
    if source.startswith(_BYTE_ORDERS):
        raise _refused(_flaw("$", "not_utf8", "is UTF-16 or UTF-32; only UTF-8 is read", 1))
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise _refused(_flaw("$", "not_utf8", f"is not UTF-8 at its byte {error.start}", line)) from error


def _composed(composer: _Composer, text: str) -> _Node:
    import yaml

    # The parser in C does not accept JSON's surrogate escapes; and its package may have been built without it.
    fast = None if _HALVES.search(text) else getattr(yaml, "CSafeLoader", None)
    try:
        for event in yaml.parse(text, Loader=fast or yaml.SafeLoader):
            composer.feed(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise _refused(*composer.flaws, _flaw("$", "syntax", _syntax_message(error, text, line), line)) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # For example, a character reference beyond Unicode.
        raise _refused(*composer.flaws, _flaw("$", "syntax", f"is not YAML: {error!s:.200}", composer.line)) from error
    return composer.root or _Node(value=None, line=1, weight=0)


class _Composer:
    """Build a value from parser events, without recursion, so that nesting cannot overflow the stack."""

    def __init__(self) -> None:
        self.flaws: list[errors.Flaw] = []
        self.root: _Node | None = None
        self.line = 1
        self._open: list[_Node] = []
        self._paths: list[str] = []
        self._anchors: dict[str, _Node] = {}
        self._weight = 0

    def feed(self, event: events.Event) -> None:
        from yaml import events

        mark = event.start_mark
        self.line = line = 1 if mark is None else mark.line + 1
        match event:
            case events.DocumentStartEvent():
                self._begin(event, line)
            case events.AliasEvent():
                self._follow(event.anchor or "", line)
            case events.ScalarEvent():
                self._untagged(event, line)
                plainly = event.style is None or event.style == ""
                value = self._scalar(event.value, line) if plainly else self._string(event.value, line)
                node = _Node(value=value, line=line, weight=_VALUE_WEIGHT + len(event.value))
                self._add(node, event.anchor, plainly and event.value == "<<")
            case events.MappingStartEvent() | events.SequenceStartEvent():
                self._untagged(event, line)
                value = {} if isinstance(event, events.MappingStartEvent) else []
                self._enter(_Node(value=value, line=line, weight=_VALUE_WEIGHT), event.anchor)
            case events.MappingEndEvent() | events.SequenceEndEvent():
                self._leave()

    def _begin(self, event: events.DocumentStartEvent, line: int) -> None:
        if self.root is not None:
            raise _refused(*self.flaws, _flaw("$", "several_documents", "holds more than one document", line))
        if event.version is not None and tuple(event.version) != (1, 2):
            found = ".".join(map(str, event.version))
            self._note("unsupported_version", f"asks for YAML {found}; only 1.2 is read", line)

    def _enter(self, node: _Node, anchor: str | None) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise self._too_deep(node.line)
        if self._expects_name():
            self._note("name_not_text", "has a name that is a list or a mapping", node.line)
        self._weigh(node.weight, node.line)
        if anchor is not None:
            self._anchors[anchor] = node
        self._paths.append(self._path())
        self._open.append(node)

    def _leave(self) -> None:
        node = self._open.pop()
        self._paths.pop()
        # Only closed nodes have a height; an alias to a node without one is recursive.
        node.height = 1 + max((part.height for part in node.below.values()), default=0)
        self._attach(node)

    def _follow(self, name: str, line: int) -> None:
        node = self._anchors.get(name)
        if node is None:
            raise _refused(*self.flaws, self._flaw("unknown_alias", f"there is no anchor &{name:.80} before it", line))
        if node in self._open:
            raise _refused(*self.flaws, self._flaw("recursive_alias", f"*{name:.80} stands inside of itself", line))
        if len(self._open) + node.height > MAX_DEPTH:
            raise self._too_deep(line)
        self._weigh(node.weight, line)
        self._attach(node)

    def _add(self, node: _Node, anchor: str | None, merges: bool) -> None:
        self._weigh(node.weight, node.line)
        if merges and self._expects_name():
            self._note("merge_key", "<< merges nothing in YAML 1.2; write the fields out", node.line)
        if anchor is not None:
            self._anchors[anchor] = node
        self._attach(node)

    def _attach(self, node: _Node) -> None:
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        parent.weight += node.weight
        match parent.value:
            case list() as items:
                parent.below[f"[{len(items)}]"] = node
                items.append(node.value)
            case dict() if parent.keyed is None:
                parent.keyed = self._name(node)
            case dict() as fields:
                name, parent.keyed = str(parent.keyed), None
                # Errors point to the line of the name, since the value may begin on a later line.
                line = parent.below.pop("", node).line
                fields[name] = node.value
                parent.below[_written(name)] = dataclasses.replace(node, line=line)

    def _name(self, node: _Node) -> str:
        parent, name = self._open[-1], node.value
        parent.below[""] = node
        if isinstance(name, dict | list):
            return "?"
        if not isinstance(name, str):
            shown = plain.encode(name).decode()
            self._note("name_not_text", f"has the name {shown:.80}, which is not a text: put it in quotes", node.line)
            return shown
        if name in parent.value:
            path = self._paths[-1] + _written(name)
            self._note("repeated_name", "is given more than once in its mapping", node.line, path)
        return name

    def _expects_name(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].keyed is None

    def _scalar(self, text: str, line: int) -> plain.Json:
        if text in _NULLS:
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        if _NO_NUMBER.fullmatch(text) or (len(text) > _MAX_DIGITS and _INTEGER.fullmatch(text)):
            self._note("bad_number", f"{text:.80} is not a number that JSON can represent", line)
            return None
        if _INTEGER.fullmatch(text):
            return int(text)
        if _OTHER_BASE.fullmatch(text) and len(text) <= _MAX_DIGITS:
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if not math.isfinite(number):
                self._note("bad_number", f"{text:.80} is not a number that JSON can represent", line)
            return number if math.isfinite(number) else None
        return self._string(text, line)

    def _string(self, text: str, line: int) -> str:
        if "\0" in text:
            self._note("nul_character", "holds the character U+0000", line)
        if text.isascii():
            return text
        # Two escapes that form a surrogate pair, as JSON writes them, become one character.
        units = text.encode("utf-16-le", "surrogatepass")
        try:
            return units.decode("utf-16-le")
        except UnicodeDecodeError:
            self._note("lone_surrogate", "contains half of a surrogate pair", line)
            return units.decode("utf-16-le", "replace")

    def _untagged(self, event: events.ScalarEvent | events.CollectionStartEvent, line: int) -> None:
        if event.tag is not None:
            message = f"has the tag {str(event.tag)!r:.80}; tags are not allowed here; write a text in quotes"
            self._note("tag", message, line)

    def _weigh(self, weight: int, line: int) -> None:
        self._weight += weight
        if self._weight > MAX_WEIGHT:
            message = f"is larger than {MAX_WEIGHT} characters with its aliases written out"
            raise _refused(*self.flaws, _flaw("$", "too_large", message, line))

    def _too_deep(self, line: int) -> errors.InputRefused:
        return _refused(*self.flaws, self._flaw("too_deep", f"is nested more than {MAX_DEPTH} deep", line))

    def _note(self, code: str, message: str, line: int, path: str | None = None) -> None:
        if len(self.flaws) < _MAX_FLAWS:
            self.flaws.append(self._flaw(code, message, line, path))

    def _flaw(self, code: str, message: str, line: int, path: str | None = None) -> errors.Flaw:
        return _flaw(path if path is not None else self._path(), code, message, line)

    def _path(self) -> str:
        """Return the path of the value that is read next."""
        if not self._open:
            return "$"
        parent = self._open[-1]
        if isinstance(parent.value, list):
            return f"{self._paths[-1]}[{len(parent.value)}]"
        return self._paths[-1] + ("" if parent.keyed is None else _written(parent.keyed))


def _written(name: str) -> str:
    return json_text.json_path((name,))[1:]


def _syntax_message(error: Exception, text: str, line: int) -> str:
    reported: Iterator[str] = (part for name in ("context", "problem") if (part := getattr(error, name, None)))
    lines = text.splitlines()
    before = lines[line - 1] if line <= len(lines) else ""
    if "\t" in before[: len(before) - len(before.lstrip())]:
        return "is not YAML: lines are indented with spaces, not with tabs"
    message = f"is not YAML: {', '.join(' '.join(part.split()) for part in reported)}"[:300]
    return message + next((f"; {hint}" for problem, hint in _HINTS.items() if problem in message), "")


def _refused(*flaws: errors.Flaw) -> errors.InputRefused:
    first = flaws[0]
    message = f"{'the text' if first.path == '$' else first.path} {first.message}"
    return errors.InputRefused(message, flaws=tuple(dict.fromkeys(flaws)))


def _flaw(path: str, code: str, message: str, line: int | None = None) -> errors.Flaw:
    return errors.Flaw(path=path, code=code, message=message, line=line)
