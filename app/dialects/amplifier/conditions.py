"""Conditions (amplifier-recipe-schema): parsed before values are filled in, so that no value is syntax."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from app.dialects.amplifier import schema

_TOKEN = re.compile(
    r"\s*(?:(?P<variable>\{\{[ \t]*(?P<name>[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)[ \t]*\}\})"
    r"|'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\""
    r"|(?P<sign>==|!=|<=|>=|<|>|\(|\))"
    r"|(?P<word>[^\s()<>=!'\"{}]+))"
)
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_WHOLE = re.compile(r"[-+]?[0-9]+")
_EQUALITIES = ("==", "!=")
_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_TRUTHS = ("true", "false")
_MOST_DEPTH = 32
_EQUALS = "; equality is written =="

Find: TypeAlias = Callable[[str], str]  # Return the text of a variable.


class ConditionInvalid(ValueError):
    """A text is not a valid condition."""


class Undecidable(ValueError):
    """The values of the variables cannot be compared in this way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One side of a comparison."""

    text: str  # The literal, or the variable's name.
    variable: bool = False  # Whether it is a variable.


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison of two values; or a single value that must be `true`."""

    left: Operand  # The first value.
    operator: str | None = None  # `==`, `!=`, `<`, `>`, `<=`, `>=`; None: the first value alone decides.
    right: Operand | None = None  # The second value.


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """A condition that must not hold."""

    inner: Condition  # That condition.


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """Two conditions."""

    left: Condition  # The first.
    operator: str  # `and` or `or`.
    right: Condition  # The second.


Condition: TypeAlias = Comparison | Not | Both


def parse(text: str, version: str = schema.FIRST) -> Condition:
    """Read a condition.

    Args:
        version: In the first version `and` and `or` bind alike, from left to right; later ones let `and` bind closer,
            and have orders, `not` and parentheses.
    """
    reader = _Reader(text, later=version != schema.FIRST)
    condition = reader.condition()
    if not list(variables(condition)):
        raise ConditionInvalid("names no variable, so it always means the same")
    return condition


def variables(condition: Condition) -> Iterator[str]:
    """Return the names in a condition, in order."""
    match condition:
        case Comparison(left=left, right=right):
            yield from (side.text for side in (left, right) if side is not None and side.variable)
        case Not(inner=inner):
            yield from variables(inner)
        case Both(left=first, right=second):
            yield from variables(first)
            yield from variables(second)


def holds(condition: Condition, find: Find) -> bool:
    """Return whether a condition holds; every variable is looked up, even if others already decide the result."""
    match condition:
        case Comparison():
            return _compared(condition, find)
        case Not(inner=inner):
            return not holds(inner, find)
        case Both(left=left, operator=operator, right=right):
            first, second = holds(left, find), holds(right, find)
            return (first and second) if operator == "and" else (first or second)


def _compared(comparison: Comparison, find: Find) -> bool:
    left = _text(comparison.left, find)
    if comparison.operator is None or comparison.right is None:
        if left not in _TRUTHS:
            raise Undecidable(f"{left!r:.80} stands alone, and is neither true nor false")
        return left == "true"
    right = _text(comparison.right, find)
    if comparison.operator in _EQUALITIES:
        return (left == right) == (comparison.operator == "==")
    return _ORDERS[comparison.operator](_number(left), _number(right))


def _text(operand: Operand, find: Find) -> str:
    return find(operand.text) if operand.variable else operand.text


def _number(text: str) -> float:
    number = float(text) if _NUMBER.fullmatch(text.strip()) else math.nan
    if not math.isfinite(number):
        raise Undecidable(f"{text!r:.80} is not a number, and only numbers have an order")
    # As floats, large whole numbers that differ by one, such as ids, would be equal.
    return int(text) if _WHOLE.fullmatch(text.strip()) else number


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


class _Reader:
    def __init__(self, text: str, *, later: bool) -> None:
        self._tokens = list(_tokens(text))
        self._later = later
        self._at = 0
        self._depth = 0

    def condition(self) -> Condition:
        read = self._disjunction() if self._later else self._chain()
        if self._next is not None:
            raise ConditionInvalid(f"{self._next.text!r:.40} does not follow; `and` or `or` would")
        return read

    @property
    def _next(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _accept(self, *words: str) -> str | None:
        token = self._next
        if token is None or token.kind not in ("word", "sign") or token.text not in words:
            return None
        self._at += 1
        return token.text

    # -- the first version: from left to right

    def _chain(self) -> Condition:
        read: Condition = self._comparison()
        while (word := self._accept("and", "or")) is not None:
            read = Both(left=read, operator=word, right=self._comparison())
        return read

    # -- later versions

    def _disjunction(self) -> Condition:
        read = self._conjunction()
        while self._accept("or"):
            read = Both(left=read, operator="or", right=self._conjunction())
        return read

    def _conjunction(self) -> Condition:
        read = self._negation()
        while self._accept("and"):
            read = Both(left=read, operator="and", right=self._negation())
        return read

    def _negation(self) -> Condition:
        self._depth += 1
        # Unlimited parentheses would exhaust the stack.
        if self._depth > _MOST_DEPTH:
            raise ConditionInvalid(f"is nested more than {_MOST_DEPTH} deep")
        try:
            if self._accept("not"):
                return Not(inner=self._negation())
            if self._accept("("):
                read = self._disjunction()
                if not self._accept(")"):
                    raise ConditionInvalid("has a parenthesis that is never closed")
                return read
            return self._comparison()
        finally:
            self._depth -= 1

    # -- both

    def _comparison(self) -> Comparison:
        left = self._operand()
        operator = self._accept(*_EQUALITIES, *_ORDERS)
        if operator in _ORDERS and not self._later:
            raise ConditionInvalid(f'{operator} needs schema: "{schema.NEWEST}"; here are == and !=')
        if operator is None:
            if self._later and left.variable:
                return Comparison(left=left)
            follows = "ends" if self._next is None else f"has {self._next.text!r:.40}"
            raise ConditionInvalid(f"{follows} where == or != must stand")
        return Comparison(left=left, operator=operator, right=self._operand())

    def _operand(self) -> Operand:
        token = self._next
        if token is None:
            raise ConditionInvalid("ends where a value must stand")
        self._at += 1
        match token.kind:
            case "variable":
                return Operand(text=token.text, variable=True)
            case "text":
                if "{{" in token.text:
                    raise ConditionInvalid(f"{token.text!r:.40} is a text; write a variable without quotes")
                return Operand(text=token.text)
            case "word" if self._later and (token.text in _TRUTHS or _NUMBER.fullmatch(token.text)):
                return Operand(text=token.text)
        raise ConditionInvalid(self._misplaced(token))

    def _misplaced(self, token: _Token) -> str:
        if not self._later and token.text in ("not", "(", ")"):
            return f'{token.text!r} needs schema: "{schema.NEWEST}"; or break the condition into several steps'
        hint = (
            ""
            if token.kind == "sign" or token.text in ("and", "or", "not")
            else "; put texts in quotes, and variables in {{…}}"
        )
        return f"{token.text!r:.40} is not a value{hint}"


def _tokens(text: str) -> Iterator[_Token]:
    end = 0
    while text[end:].strip():
        found = _TOKEN.match(text, end)
        if found is None:
            rest = text[end:].strip()
            raise ConditionInvalid(f"cannot be read from {rest!r:.40} on{_EQUALS if rest.startswith('=') else ''}")
        end = found.end()
        if found["variable"] is not None:
            yield _Token("variable", found["name"])
        elif found["single"] is not None or found["double"] is not None:
            yield _Token("text", found["single"] if found["single"] is not None else found["double"])
        else:
            yield _Token("sign", found["sign"]) if found["sign"] else _Token("word", found["word"])
