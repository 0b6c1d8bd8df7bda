"""Text files as tools read them: front matter, headings, fields and paragraphs, each with its line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from app.tools.workspace import Workspace

_FENCE = re.compile(r"\s{0,3}(?:```|~~~)")
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s{1,8}(\S.{0,400})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A Markdown heading."""

    level: int  # 1 to 6.
    text: str  # Its text.
    line: int  # Line in the file, from 1.


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An entry of a list."""

    depth: int  # Blanks before its mark.
    text: str  # Its text without the mark.
    line: int  # Line in the file, from 1.


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Lines of prose that belong together: a paragraph or one entry of a list."""

    lines: tuple[str, ...]  # The lines.
    line: int  # Line of the first one in the file, from 1.


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A text file, split into its parts."""

    path: str  # Path in the workspace; empty for a text that is not a file.
    lines: tuple[str, ...]  # All lines without their ends; line N of the file is `lines[N - 1]`.
    front_matter: Mapping[str, FrontMatterValue]  # Metadata by name, names in lower case with `_` between words.
    front_matter_lines: Mapping[str, int]  # Line of each of these names.
    body_line: int  # Line on which the body begins, from 1.

    @property
    def title(self) -> str:
        """The front matter's title, else the first heading, else the file's name."""
        stated = self.front_matter.get("title") or self.front_matter.get("name")
        if isinstance(stated, str) and stated:
            return stated
        first = next(iter(headings(self)), None)
        return first.text if first else PurePosixPath(self.path).stem

    def scalar(self, *names: str) -> str | None:
        """Return the first of the named front matter values that is set, lists joined with commas."""
        for name in names:
            value = self.front_matter.get(name)
            if value:
                return value if isinstance(value, str) else ", ".join(value)
        return None

    def entries(self, *names: str) -> tuple[str, ...]:
        """Return the first of the named front matter values that is set, as a list."""
        for name in names:
            value = self.front_matter.get(name)
            if value:
                return split_list(value) if isinstance(value, str) else value
        return ()


def read(workspace: Workspace, path: str) -> Document:
    """Read and parse a file of the workspace."""
    return parse(workspace.read_text(path), path=path)


def parse(text: str, *, path: str = "") -> Document:
    """Parse a text; line ends of every kind are equal."""
    lines = tuple(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    end = front_matter_end(lines)
    fields = front_matter(lines[1:end], first_line=2) if end else []
    return Document(
        path=path,
        lines=lines,
        front_matter={name: value for name, value, _ in fields},
        front_matter_lines={name: line for name, _, line in fields},
        body_line=end + 2 if end else 1,
    )


def headings(document: Document) -> list[Heading]:
    """Return the headings outside of code."""
    found = []
    for line, text in body(document):
        match = _HEADING.match(text)
        if match:
            found.append(Heading(level=len(match[1]), text=match[2].strip(" #\t") or match[2].strip(), line=line))
    return found


def items(document: Document) -> list[Item]:
    """Return the entries of all lists."""
    found = []
    for line, text in body(document):
        match = ITEM.match(text)
        if match:
            found.append(Item(depth=len(match[1]), text=match[2].strip(), line=line))
    return found


def fields(document: Document) -> list[Field]:
    """Return the front matter's fields and the `Name: value` lines of the body."""
    found = [
        Field(
            name=name,
            value=value if isinstance(value, str) else ", ".join(value),
            line=document.front_matter_lines[name],
        )
        for name, value in document.front_matter.items()
    ]
    for line, text in body(document):
        item = ITEM.match(text)
        field = field_of(item[2] if item else text, line)
        if field and field.value:
            found.append(field)
    return found


def blocks(document: Document) -> list[Block]:
    """Return the prose of the body: its paragraphs, without headings, rules and code."""
    found: list[Block] = []
    gathered: list[str] = []
    first = 0
    # An additional empty line after the last one closes the last paragraph.
    for line, text in [*body(document), (len(document.lines) + 1, "")]:
        item = ITEM.match(text)
        ends = not text.strip() or _HEADING.match(text) is not None or _is_rule(text)
        if gathered and (ends or item or line > first + len(gathered)):
            found.append(Block(lines=tuple(gathered), line=first))
            gathered = []
        if not ends:
            first = first if gathered else line
            gathered.append(item[2] if item else text.strip().removeprefix("> "))
    return found


def body(document: Document) -> list[tuple[int, str]]:
    """Return the numbered lines of the body outside of fenced code."""
    inside = False
    found = []
    for line, text in enumerate(document.lines[document.body_line - 1 :], start=document.body_line):
        if _FENCE.match(text):
            inside = not inside
        elif not inside:
            found.append((line, text))
    return found


def _is_rule(text: str) -> bool:
    bare = text.replace(" ", "")
    return len(bare) >= 3 and len(set(bare)) == 1 and bare[0] in "-*_=#"


FrontMatterValue = str | tuple[str, ...]  # A scalar as text, or a list of scalars.
ITEM = re.compile(r"(\s{0,24})(?:[-*+]|\d{1,4}[.)])\s{1,8}(\S.*)")  # An entry of a list: its blanks, and its text.

_FIELD = re.compile(r"(?:\*\*|__)?([^\W\d_][\w '/()-]{0,40})(?:\*\*|__)?\s{0,2}:(?:\*\*|__)?(?:\s{1,8}(\S.*))?$")
_FRONT_MATTER_LINES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A `Name: value` line, in front matter or in the body."""

    name: str  # Name in lower case with `_` between its words.
    value: str  # Its value as text; a list's entries are joined with commas.
    line: int  # Line in the file, from 1.
    label: str = ""  # Its name as it is written.


def field_of(text: str, line: int) -> Field | None:
    """Read one line as `Name: value`; the value is empty where a list follows."""
    match = _FIELD.match(text.strip())
    if match is None:
        return None
    value = (match[2] or "").strip(" *_\t")
    return Field(name=name_of(match[1]), value=value, line=line, label=match[1].strip())


def split_list(value: str) -> tuple[str, ...]:
    """Split a value at its commas and semicolons."""
    return tuple(part for part in (part.strip(" []\"'\t") for part in re.split("[,;]", value)) if part)


def front_matter_end(lines: Sequence[str]) -> int:
    """Return the index of the line that closes the front matter, 0 if there is none."""
    if not lines or lines[0].strip() != "---":
        return 0
    closing = (
        index for index, line in enumerate(lines[1:_FRONT_MATTER_LINES], start=1) if line.strip() in {"---", "..."}
    )
    return next(closing, 0)


def front_matter(lines: Sequence[str], first_line: int) -> list[tuple[str, FrontMatterValue, int]]:
    """Read the subset of YAML that notes use: scalars, `[a, b]` and `- a` lists; anything deeper is left out."""
    found: list[tuple[str, FrontMatterValue, int]] = []
    for line, text in enumerate(lines, start=first_line):
        item = ITEM.match(text)
        if item and found and not (isinstance(found[-1][1], str) and found[-1][1]):
            name, value, place = found.pop()
            found.append((name, (*value, _scalar(item[2])), place))
        elif not text.startswith((" ", "\t", "#")) and (field := field_of(text, line)):
            found.append((field.name, _value(field.value), line))
    return found


def _value(text: str) -> FrontMatterValue:
    if text.startswith("[") and text.endswith("]"):
        return tuple(_scalar(part) for part in split_list(text[1:-1]))
    return _scalar(text)


def _scalar(text: str) -> str:
    bare = text.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'":
        return bare[1:-1]
    return bare.split(" #", 1)[0].rstrip()


def name_of(label: str) -> str:
    """Return a field's name in lower case with `_` between its words."""
    return "_".join(label.strip().lower().replace("-", " ").replace("/", " ").split())
