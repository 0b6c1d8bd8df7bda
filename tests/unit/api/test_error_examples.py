"""Examples of errors: each is a message that the code can produce."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from app import errors
from app.api import refusal_examples, refusals
from tests.architecture import sources

LITERAL_SHARE = 0.6
"""The share of an example, names and ids apart, that the literal text of its templates must cover."""
NAMES = re.compile(r"'[^']*'|\b[\w.-]*[\d_/][\w./-]*|[A-Z]\w+ [A-Z]\w+")
"""Forms of the values that fill a placeholder: quoted texts, ids, paths, names."""
SHORTEST = 8
"""The fewest literal characters of a useful template."""
JOINTS = (r": ", r"(?<=\.) ", r"; ")
"""What joins messages that are made in different places."""


@pytest.mark.parametrize("code", sorted(refusals.EXAMPLES))
def test_example_is_a_message_of_the_code(code: str) -> None:
    """Each example's message is made of templates in the code, or is the default message of its error."""
    message = str(refusals.EXAMPLES[code].to_json()["detail"])

    assert _is_default(message) or _is_made_of_templates(message), message


@pytest.mark.parametrize(
    "made_up", ["the run has gone somewhere else", "run 7 of draft was eaten", "no such thing here"]
)
def test_made_up_message_is_found(made_up: str) -> None:
    """A message that the code does not contain is not accepted as an example."""
    assert not _is_made_of_templates(made_up)


def _is_default(message: str) -> bool:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
    return any(message == (kind.__doc__ or "").splitlines()[0] for kind in kinds)


def _is_made_of_templates(message: str) -> bool:
    return _covered(message) >= LITERAL_SHARE * len(NAMES.sub("", message))


def _covered(message: str) -> int:
    """Return how many characters of a message literal parts of templates cover, as a whole or joined of parts."""
    # A template that does not fit into the message fits into none of its parts.
    patterns = _patterns([parts for parts in _templates() if _may_fit(parts, message)])

    @cache
    def covered(text: str, depth: int) -> int:
        if not depth:
            return 0
        found = [(match, size) for pattern, size in patterns if (match := pattern.fullmatch(text))]
        best = sorted(found, key=lambda each: -each[1])[:6]
        sums = [size + sum(covered(part, depth - 1) for part in match.groups()) for match, size in best]
        halves = [re.split(mark, text, maxsplit=1) for mark in JOINTS]
        joined = [sum(covered(half, depth - 1) for half in pair) for pair in halves if len(pair) == 2]
        return max([*sums, *joined], default=0)

    return covered(message, 4)


@cache
def _templates() -> frozenset[tuple[str | None, ...]]:
    """Return every text of the program as its literal parts; None is a placeholder."""
    modules = [
        module
        for module in sources.modules(sources.APP)
        if module.name not in (refusals.__name__, refusal_examples.__name__)
    ]
    texts = {tuple(_parts(node)) for module in modules for node in sources.walk(module.tree)}
    return frozenset(parts for parts in texts if _size(parts) >= SHORTEST)


def _size(parts: tuple[str | None, ...]) -> int:
    return sum(len(part) for part in parts if part is not None)


def _may_fit(parts: tuple[str | None, ...], message: str) -> bool:
    """Return whether a message contains all literal parts in order: a pattern for each template would take seconds."""
    position = 0
    for part in parts:
        if part is not None:
            position = message.find(part, position)
            if position < 0:
                return False
            position += len(part)
    return True


def _patterns(templates: list[tuple[str | None, ...]]) -> list[tuple[re.Pattern[str], int]]:
    return [
        (re.compile("".join(hole if part is None else re.escape(part) for part in parts), re.DOTALL), _size(parts))
        for parts in templates
        for hole in ("(.*)", "(.*?)")
    ]


def _parts(node: ast.AST) -> list[str | None]:
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            return [str(part.value) if isinstance(part, ast.Constant) else None for part in values]
    return []
