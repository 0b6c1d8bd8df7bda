"""Composition: take steps from files beside the recipes, and put arguments into prompts (agent-recipes, 10 and 18)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from app import errors
from app.domain import json_schemas, json_text, plain
from app.engine import ports

REF, INCLUDE = "$ref", "$include"  # Names with which a recipe takes one step, or all steps, of a file.

_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*\.json")
_PLACEHOLDER = re.compile(r"\{\{\s*args\.([^{}\s]*)\s*\}\}")
_MOST_PARTS = 2_000

_Read: TypeAlias = Callable[[str], str]
_Object: TypeAlias = dict[str, plain.Json]
_Trail: TypeAlias = tuple[str, ...]


class _Spot(NamedTuple):
    file: str  # File that contains a part; empty for the recipe itself.
    parts: json_text.Parts  # Place of the part in it.


class _Taken(NamedTuple):
    params: plain.Json  # A step.
    spots: dict[json_text.Parts, _Spot]  # Where the step and those parts of it that replace others are written.


def compose(source: str, read: _Read) -> ports.Composition:
    """Return a recipe's text with every step in it that it takes from other files.

    Args:
        read: Returns the text of a file by its path from the folder of the recipes.
    """
    try:
        document = json_text.read(source, exact=True)
    except errors.InputRefused:
        # The parser reports the flaws with the lines of this text.
        return ports.Composition(source=source)
    steps = document.get("steps") if isinstance(document, dict) else None
    if not isinstance(steps, dict) or not is_composed(steps):
        return ports.Composition(source=source)
    composer = _Composer(read)
    composed: _Object = {}
    sources: dict[str, tuple[str, str]] = {}
    flaws = []
    for name, part in steps.items():
        try:
            found = composer.entry(name, part, steps)
        except _Cannot as error:
            composed[name] = part
            place = ("steps", name) if name == INCLUDE else ("steps", name, REF)
            flaws.append(json_schemas.flaw(place, error.code, str(error)))
        else:
            composed |= {own: step.params for own, step in found.items()}
            sources |= dict(_sources(found))
    source = plain.encode(document | {"steps": composed}).decode()
    return ports.Composition(source=source, flaws=tuple(flaws), sources=sources)


def is_composed(steps: plain.Object) -> bool:
    """Return whether some of a recipe's steps are in other files."""
    return INCLUDE in steps or any(_is_reference(step) for step in steps.values())


def placeholders(prompt: str) -> Iterator[str]:
    """Return the names of the arguments in a prompt."""
    return (found[1] for found in _PLACEHOLDER.finditer(prompt))


def filled(prompt: str, args: plain.Object) -> str:
    """Return a prompt with its arguments filled in, in one pass: an argument's value is never read as a placeholder."""
    return _PLACEHOLDER.sub(lambda found: _written(args[found[1]]), prompt)


class _Cannot(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


_Steps: TypeAlias = dict[str, _Taken]


class _Composer:
    def __init__(self, read: _Read) -> None:
        self._read = read
        self._files: dict[str, _Object] = {}
        self._parts = 0

    def entry(self, name: str, part: plain.Json, own: Collection[str], trail: _Trail = (), file: str = "") -> _Steps:
        """Return the steps to which an entry of an object of steps expands."""
        if name != INCLUDE:
            return {name: self._step(part, trail, _Spot(file, (name,)))}
        return {name: step for name, step in self._included(part, trail).items() if name not in own}

    def _included(self, files: plain.Json, trail: _Trail) -> _Steps:
        taken: _Steps = {}
        for file in files if isinstance(files, list) else [files]:
            steps = self._all(file, self._deeper(trail, str(file)))
            # Otherwise, the order of the files would decide which of the two steps is taken.
            if both := sorted(taken.keys() & steps.keys()):
                raise _Cannot("duplicate_step", f"takes {', '.join(both)} from two files")
            taken |= steps
        return taken

    def _all(self, file: plain.Json, trail: _Trail) -> _Steps:
        with _named_in(trail[:-1]):
            steps = {name: part for name, part in self._file(file).items() if name != "$schema"}
        return {
            name: step
            for entry, part in steps.items()
            for name, step in self.entry(entry, part, steps, trail, str(file)).items()
        }

    def _step(self, params: plain.Json, trail: _Trail, spot: _Spot) -> _Taken:
        if not _is_reference(params):
            return _Taken(params, {(): spot})
        file, _, pointer = str(params[REF]).partition("#")
        deeper = self._deeper(trail, f"{file}#{pointer}")
        with _named_in(trail):
            found = _followed(self._file(file), pointer, file)
        return _laid_over(self._step(found, deeper, _Spot(file, _names(pointer))), params, spot)

    def _file(self, name: plain.Json) -> _Object:
        if not isinstance(name, str) or not _FILE.fullmatch(name):
            raise _Cannot("invalid_ref", f"{name!r:.80} does not name a JSON file below the folder of the recipes")
        if name not in self._files:
            self._files[name] = self._opened(name)
        return self._files[name]

    def _opened(self, name: str) -> _Object:
        try:
            content = json_text.read(self._read(name), exact=True)
        except errors.InputRefused as error:
            later = any(flaw.code == errors.Unreadable.default_code for flaw in error.flaws)
            code = errors.Unreadable.default_code if later else "unusable_file"
            raise _Cannot(code, f"{name} cannot be used: {error.message}") from error
        if not isinstance(content, dict):
            raise _Cannot("unusable_file", f"{name} must be an object, not {json_schemas.kind_of(content)}")
        return content

    def _deeper(self, trail: _Trail, part: str) -> _Trail:
        self._parts += 1
        if part in trail:
            raise _Cannot("cyclic_ref", f"leads back to itself: {' → '.join((*trail, part))}")
        if self._parts > _MOST_PARTS:
            raise _Cannot("too_many_parts", f"the recipe takes more than {_MOST_PARTS} parts from elsewhere")
        return (*trail, part)


def _is_reference(step: plain.Json) -> bool:
    return isinstance(step, dict) and REF in step


def _followed(content: plain.Json, pointer: str, file: str) -> plain.Json:
    if not pointer.startswith("/"):
        raise _Cannot("invalid_ref", "must end in #/ and the name of a step")
    for name in _names(pointer):
        if not isinstance(content, dict) or name not in content:
            near = json_schemas.nearest(name, content) if isinstance(content, dict) else ""
            raise _Cannot("unknown_part", f"{file} has no {name!r:.80}{near}")
        content = content[name]
    if not isinstance(content, dict):
        raise _Cannot("unknown_part", f"{file}#{pointer} is not a step")
    return content


def _names(pointer: str) -> tuple[str, ...]:
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))


@contextmanager
def _named_in(trail: _Trail) -> Iterator[None]:
    try:
        yield
    except _Cannot as error:
        if not trail:
            raise
        raise _Cannot(error.code, f"{error} (named in {trail[-1]})") from error


def _laid_over(below: _Taken, reference: _Object, spot: _Spot) -> _Taken:
    own = {name: value for name, value in reference.items() if name != REF}
    replaced: list[json_text.Parts] = [(name,) for name in own]
    match below.params, own.get("onOutcome"):
        case {"onOutcome": dict() as inherited}, dict() as changed:
            own["onOutcome"] = {**inherited, **changed}
            replaced.remove(("onOutcome",))
            replaced += [("onOutcome", outcome) for outcome in changed]
    spots = {parts: _Spot(spot.file, (*spot.parts, *parts)) for parts in replaced}
    return _Taken({**below.params, **own}, {**below.spots, **spots})


def _sources(steps: _Steps) -> Iterator[tuple[str, tuple[str, str]]]:
    for name, step in steps.items():
        for parts, spot in step.spots.items():
            yield json_text.json_path(("steps", name, *parts)), (spot.file, json_text.json_path(spot.parts))


def _written(value: plain.Json) -> str:
    return value if isinstance(value, str) else plain.encode(value).decode()
