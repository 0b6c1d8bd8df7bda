"""Shell: parse a command once as Bash does, with its here-documents, and mark what the parser may misread.

Variables are letters while the text is parsed, and so is every character without a meaning in Bash. So positions in
the tree are positions in the text, and no character is a blank for only one of parser and Bash.
"""

# A pattern cannot detect whether a variable of a command is quoted: an apostrophe in a comment misleads it. With
# escaped values in the text, every mistake of escaping would execute foreign code.
#
# So values stay in the environment. tree-sitter-bash reads the command; each variable becomes `"${NAME}"` in the
# quoting of its place, and a quoted here-document becomes one that expands only these. What Bash would evaluate is
# rejected, and so is everything after a place that the parser is known to read differently from Bash. A property test
# compares generated commands with the real Bash.
#
# Price: a few valid commands are rejected; moving the variable to `env` always helps. Two compiled packages are part of
# the installation.

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Parser

_FILLER, _ORDINARY = "V", "x"
_UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]")
_BEFORE_COMMENT = " \t\n;&|()"
_QUOTES = re.compile(r"""['"\\]""")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_LINE_END = re.compile(r"(?<!\\)\n")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_EXPANSION = re.compile(r"\s*(?:`|\$(?:[({]|\w+\Z|[-*@?!#$]\Z))")
_EXPANDING = re.compile(r"`|\$[({\[]")
_UNREAD = {
    "string": re.compile(r'["`]|\$[({\[]'),
    "heredoc_body": _EXPANDING,
    "heredoc_content": _EXPANDING,
    "word": re.compile(r"['\"`]|\$[({\['\"]"),
}
"""The only parts that the parser may find in a node of this kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HereDocument:
    """A here-document."""

    start: tuple[int, int]  # Position of the delimiter at its beginning, with quotes.
    body: tuple[int, int]  # Position of its text.
    end: tuple[int, int]  # Position of the delimiter at its end.
    delimiter: str  # The delimiter without quotes.
    quoted: bool  # Whether the delimiter is quoted, so that Bash expands nothing in the text.


class Shell:
    """A command, parsed as Bash parses it."""

    def __init__(self, text: str, spots: Sequence[tuple[int, int]]) -> None:
        self.text = text
        self.masked = _masked(text, spots)
        self.root = _parser().parse(self.masked.encode("ascii")).root_node
        self._parents: dict[int, Node] = {}
        self._kinds: dict[str, list[Node]] = {}
        self._look_through()
        documents = [(node, self._document(node)) for node in self.all("heredoc_redirect")]
        self.documents = [document for _, document in documents if document is not None]
        unended = [node.start_byte for node, document in documents if document is None]
        self.trusted = min([*unended, *self._doubts()], default=len(text) + 1)
        """End of the part that the parser reads as Bash does, as far as known."""

    def all(self, *kinds: str) -> Iterator[Node]:
        """Return the nodes of some kinds."""
        for kind in kinds:
            yield from self._kinds.get(kind, ())

    def around(self, node: Node) -> Node | None:
        """Return the node that a node is a part of."""
        return self._parents.get(node.id)

    def quoted(self, start: int, end: int) -> bool:
        """Return whether a part of the text is in a here-document that Bash does not expand."""
        return any(one.quoted and one.body[0] <= start and end <= one.body[1] for one in self.documents)

    def in_double_quotes(self, node: Node) -> bool:
        """Return whether Bash expands a node as in double quotes, without splitting the value into words."""
        at: Node | None = node
        while at is not None and at.type not in ("command_substitution", "process_substitution"):
            if at.type in ("string", "heredoc_body"):
                return True
            at = self.around(at)
        return False

    def at(self, start: int, end: int) -> Node | None:
        """Return the smallest node around a part of the text."""
        return self.root.descendant_for_byte_range(start, end)

    def source(self, node: Node) -> str:
        """Return the text of a node, with its variables as letters and its continued lines joined."""
        return self.masked[node.start_byte : node.end_byte].replace("\\\n", "  ")

    def line(self, position: int) -> int:
        """Return the line of a position, from 1."""
        return self.text.count("\n", 0, position) + 1

    def _look_through(self) -> None:
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            self._kinds.setdefault(node.type, []).append(node)
            for child in node.children:
                self._parents[child.id] = node
                waiting.append(child)

    def _doubts(self) -> Iterator[int]:
        """Return the beginnings of parts that the parser cannot read, or is known to read differently from Bash."""
        if self.root.has_error:
            yield next((child.start_byte for child in self.root.children if child.has_error), 0)
        for node in self.all("simple_expansion", "command_substitution", "expansion"):
            if not _EXPANSION.match(self.source(node)):
                yield node.start_byte
        for node in self.all("comment", "string", "heredoc_body", "heredoc_content", "word"):
            if node.type == "comment":
                doubtful = node.start_byte > 0 and self.masked[node.start_byte - 1] not in _BEFORE_COMMENT
            else:
                doubtful = _UNREAD[node.type].search(self._own(node)) is not None
            if doubtful and not self.quoted(node.start_byte, node.end_byte):
                yield node.start_byte

    def _own(self, node: Node) -> str:
        """Return the text of a node without its escapes and without the parts that the parser has found in it."""
        text, end = "", node.start_byte
        for part in node.children:
            if part.type not in ('"', "string_content", "heredoc_content"):
                text += self.masked[end : part.start_byte]
                end = part.end_byte
        text += self.masked[end : node.end_byte]
        return _ESCAPED.sub("", text[1:-1] if node.type == "string" else text)

    def _document(self, node: Node) -> HereDocument | None:
        parts = {child.type: (child.start_byte, child.end_byte) for child in node.children}
        if not {"heredoc_start", "heredoc_body", "heredoc_end"} <= parts.keys():
            return None
        start, body, end = parts["heredoc_start"], parts["heredoc_body"], parts["heredoc_end"]
        written = self.text[slice(*start)]
        delimiter, quoted = _QUOTES.sub("", written), _QUOTES.search(written) is not None
        # The text begins after the delimiter's line. The parser skips blank lines, and may skip words as well.
        line_end = _LINE_END.search(self.text, start[1])
        at = line_end.end() if line_end else len(self.text)
        if self.text[at : body[0]].strip():
            return None
        joined = False
        while at <= len(self.text):
            stop = self.text.find("\n", at)
            stop = len(self.text) if stop < 0 else stop
            line = self.text[at:stop]
            begin = at + (len(line) - len(line.lstrip("\t")) if "<<-" in parts else 0)
            if not joined and self.text[begin:stop] == delimiter:
                place = HereDocument(start=start, body=body, end=end, delimiter=delimiter, quoted=quoted)
                return place if delimiter and (begin, stop) == end else None
            joined = not quoted and _CONTINUED.search(line) is not None
            at = stop + 1
        return None


def _parser() -> Parser:
    """Return a new parser for each command: recipes are read in several threads, and a parser is not thread-safe."""
    import tree_sitter

    return tree_sitter.Parser(_language())


@lru_cache(maxsize=1)
def _language() -> Language:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def _masked(text: str, spots: Sequence[tuple[int, int]]) -> str:
    made, end = list[str](), 0
    for start, stop in spots:
        made += [_UNUSUAL.sub(_ORDINARY, text[end:start]), _FILLER * (stop - start)]
        end = stop
    return "".join((*made, _UNUSUAL.sub(_ORDINARY, text[end:])))
