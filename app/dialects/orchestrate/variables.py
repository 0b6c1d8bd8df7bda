"""Variables: substitute `${…}` in texts, and collect gaps (workflow-dsl); no value is read as a variable."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from app.domain import json_schemas, json_text, plain

PROMPT = "PROMPT"  # Placeholder of the composed prompt in a provider's template.
RESERVED = ("run", "loop", "steps", "context", "env", PROMPT)  # Names that no item of a loop can have.
RESULTS = (
    "status", "exit_code", "output", "lines", "json", "truncated", "duration_ms", "files", "wait_duration_ms",
    "poll_count", "timed_out",
)  # fmt: skip
"""Fields of a step's result that variables can name."""

_OLD_NAMES = {"duration": "duration_ms"}
_TOKEN = re.compile(r"\$\$(\{?)|\$\{([^{}]*)\}|\$\{")
_WILDCARD = re.compile(r"[\[*?]")
_POINTER = re.compile(r"steps\.([A-Za-z0-9][A-Za-z0-9_-]*)\.(lines|json((?:\.[^.]+)*))")

Results: TypeAlias = Mapping[str, plain.Object | list[plain.Json] | None]
"""Steps of one scope by name: their fields in the state, a list for loops, None for steps without a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The iteration that a step belongs to."""

    alias: str  # Name of the variable that holds the item.
    item: plain.Json  # Item.
    index: int  # Position of the item, from 0.
    total: int  # Number of items.


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """All values that variables can name at one place and time."""

    run: Mapping[str, str]  # `id`, `root`, `timestamp_utc`.
    context: plain.Object = field(default_factory=dict)  # The workflow's values, overridden by the command line.
    loops: tuple[Loop, ...] = ()  # Loops around the place, the innermost first.
    steps: tuple[Results, ...] = ()  # Results by scope, innermost first; inner names hide outer ones.
    params: plain.Object = field(default_factory=dict)  # Parameters of a provider, in its template.
    prompt: str | None = None  # Composed prompt, for a template that may name it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A name that is undefined."""

    name: str  # The name, without `${}`.
    reason: str  # The reason, in a few words.


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """The source of a loop's items."""

    step: str  # Earlier step.
    field: str  # `lines` or `json`.
    path: tuple[str, ...]  # Names inside the JSON.


class Filler:
    """Substitute variables in many texts, and collect every name that is undefined."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._gaps: dict[str, Gap] = {}
        self.literals: dict[str, str] = {}
        """Patterns with a wildcard character in a variable's value; each mapped to one that matches it literally."""

    def text(self, template: str) -> str:
        """Return a text with its variables substituted; an undefined variable remains."""
        return _TOKEN.sub(self._put, template)

    def pattern(self, template: str) -> str:
        """Return a pattern with its variables substituted; file names in them may contain wildcard characters."""
        text = self.text(template)
        literal = _TOKEN.sub(lambda found: _WILDCARD.sub(r"[\g<0>]", self._put(found)), template)
        if literal != text:
            self.literals[text] = literal
        return text

    def value(self, template: plain.Json) -> plain.Json:
        """Return a value with the variables in its texts substituted, but not in its names."""
        match template:
            case str():
                return self.text(template)
            case Mapping():
                return {name: self.value(item) for name, item in template.items()}
            case list() | tuple():
                return [self.value(item) for item in template]
        return template

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Return the undefined names so far, each once."""
        return tuple(self._gaps.values())

    def _put(self, found: re.Match[str]) -> str:
        if found[0].startswith("$$"):
            return f"${found[1]}"
        if found[2] is None:
            self._gaps["${"] = Gap(name="", reason="`${` has no end; write `$${` for the characters themselves")
            return found[0]
        value = resolved(found[2], self._scope)
        if isinstance(value, Gap):
            # Gaps are collected, so that one error reports all of them.
            self._gaps[found[2]] = value
            return found[0]
        return written(value)


def resolved(name: str, scope: Scope) -> plain.Json | Gap:
    """Return the value of a name."""
    if name == PROMPT:
        return scope.prompt if scope.prompt is not None else Gap(name=name, reason="only providers have a prompt")
    head, *path = name.split(".")
    match head:
        case "run":
            return _walked(name, scope.run, path)
        case "loop":
            return _of_loop(name, scope.loops, path)
        case "steps":
            return _of_step(name, scope.steps, path)
        case "context":
            return _walked(name, scope.context, path)
        case "env":
            return Gap(
                name=name, reason="the environment is not a namespace; a step gets variables by `env` and `secrets`"
            )
    # Whole names before their parts: a parameter's name may contain a dot.
    if name in scope.params:
        return scope.params[name]
    if head in scope.params:
        return _walked(name, scope.params[head], path)
    for loop in scope.loops:
        if loop.alias == head:
            return _walked(name, loop.item, path, whole=True)
    return Gap(name=name, reason="there is no such variable; write `$${` to leave it to the program")


def items(reference: str, scope: Scope, *, whole: bool = True) -> list[plain.Json] | Gap:
    """Return the items that a loop's `items_from` names.

    Args:
        whole: Whether a list must be complete; the driver's first version also accepted one that was cut off.
    """
    source = pointer(reference)
    if source is None:
        return Gap(name=reference, reason="must be steps.NAME.lines, or steps.NAME.json and names behind dots")
    found = resolved(reference, scope)
    if isinstance(found, Gap):
        return found
    if not isinstance(found, list):
        return Gap(name=reference, reason=f"is {json_schemas.kind_of(found)}, not a list")
    # With a list that was cut off, the loop would miss items without notice.
    if whole and resolved(f"steps.{source.step}.truncated", scope) is True:
        return Gap(name=reference, reason=f"was cut off after {len(found)} lines; list fewer, or loop over parts")
    return found


def pointer(text: str) -> Pointer | None:
    """Read the source of a loop's items, or return None if the text is not one."""
    found = _POINTER.fullmatch(text)
    if found is None:
        return None
    path = tuple(found[3].split(".")[1:]) if found[3] else ()
    return Pointer(step=found[1], field=found[2].partition(".")[0], path=path)


def written(value: plain.Json) -> str:
    """Return the text form of a value: a text itself, any other value as JSON."""
    return value if isinstance(value, str) else plain.encode(value).decode()


def names(template: str) -> Iterator[str]:
    """Return the names of a text's variables, in order."""
    return (found[2] for found in _TOKEN.finditer(template) if found[2] is not None)


def is_open(template: str) -> bool:
    """Return whether a text contains a `${` that is not closed."""
    return any(found[0] == "${" for found in _TOKEN.finditer(template))


def with_stand_ins(template: str, stand_in: str) -> str:
    """Return a text with each of its variables replaced by the same text."""
    return _TOKEN.sub(lambda found: f"${found[1]}" if found[0].startswith("$$") else stand_in, template)


def error_context(gaps: Iterable[Gap], *, template: bool = False) -> dict[str, plain.Json]:
    """Return the error context for names that are undefined (workflow-dsl, error context)."""
    listed = list(gaps)
    context: dict[str, plain.Json] = {}
    unknown = [gap for gap in listed if not template or gap.name.split(".")[0] in RESERVED]
    if template:
        context["missing_placeholders"] = [gap.name for gap in listed]
    if unknown:
        context["undefined_vars"] = [f"${{{gap.name}}}" for gap in unknown]
    references = [{"reference": gap.name, "reason": gap.reason} for gap in listed if gap.name.startswith("steps.")]
    return context | {"invalid_reference": references} if references else context


def _of_loop(name: str, loops: tuple[Loop, ...], path: list[str]) -> plain.Json | Gap:
    if not loops:
        return Gap(name=name, reason="there is no loop around this step")
    return _walked(name, {"index": loops[0].index, "total": loops[0].total}, path)


def _of_step(name: str, scopes: tuple[Results, ...], path: list[str]) -> plain.Json | Gap:
    if len(path) < 2:
        return Gap(name=name, reason="must be steps.NAME.FIELD")
    step, requested, *below = path
    results = next((results for results in scopes if step in results), {})
    result = results.get(step)
    if isinstance(result, list):
        return Gap(name=name, reason=f"{step} is a loop; results of its iterations are seen inside of it only")
    if result is None:
        reason = f"{step} has no result yet" if step in results else f"there is no step {step} here"
        return Gap(name=name, reason=reason)
    known = _OLD_NAMES.get(requested, requested)
    if known not in RESULTS or known not in result:
        return Gap(name=name, reason=f"the result of {step} has no {requested}")
    return _walked(name, result[known], below, whole=True)


def _walked(name: str, value: plain.Json, path: list[str], *, whole: bool = False) -> plain.Json | Gap:
    if not path and not whole:
        return Gap(name=name, reason="must name something inside")
    for part in path:
        try:
            value = json_text.inner(value, part)
        except KeyError:
            return Gap(name=name, reason=f"there is no {part!r:.80} in {json_schemas.kind_of(value)}")
    return value
