"""Lazy dataclasses: everything that can be seen of one is as the standard library would have made it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from app import lazy_dataclasses


def _frozen(dataclass: Any) -> Any:
    class Base:
        kind: ClassVar[str] = "base"

        number: int
        word: str = "none"

    base: Any = dataclass(frozen=True, slots=True, kw_only=True)(Base)

    class Value(base):  # type: ignore[misc]
        many: list[int] = field(default_factory=list)
        hidden: int = field(default=3, repr=False)
        ignored: int = field(default=4, compare=False)
        made: int = field(init=False, default=5)

    return dataclass(frozen=True, slots=True, kw_only=True)(Value)


def _mutable(dataclass: Any) -> Any:
    class Value:
        number: int
        word: str = "none"
        total: int = field(init=False)
        seen: list[int] = field(init=False, default_factory=list)
        named: int = field(default=1, kw_only=True)

        def __post_init__(self) -> None:
            self.total = self.number + self.named

    return dataclass(slots=True)(Value)


def _outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as error:
        return type(error), str(error)


_CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, "two"), {"named": 3}),
    ((1, "two", 3), {}),
    ((), {"number": 1}),
    ((), {"number": 1, "word": "two", "many": [3], "hidden": 4, "ignored": 5}),
    ((), {"number": 1, "made": 2}),
    ((), {"number": 1, "unknown": 2}),
]


@pytest.mark.parametrize("make", [_frozen, _mutable])
def test_objects_are_made_refused_and_shown_as_by_the_standard_library(make):
    """Every way to call a class gives the same text, or the same refusal, at the first call and at a later one."""
    lazy, standard = make(lazy_dataclasses.dataclass), make(dataclasses.dataclass)

    for args, named in _CALLS * 2:
        assert _outcome(lambda: repr(lazy(*args, **named))) == _outcome(lambda: repr(standard(*args, **named)))  # noqa: B023


def test_equality_and_hash_look_at_the_compared_fields():
    """Two objects are equal, and hash alike, if their compared fields are; another class is never equal."""
    lazy = _frozen(lazy_dataclasses.dataclass)
    one, same, other = (lazy(number=1, many=(), ignored=each, hidden=9 * (each == 3)) for each in (1, 2, 3))

    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != _frozen(lazy_dataclasses.dataclass)(number=1, many=())
    assert _mutable(lazy_dataclasses.dataclass).__hash__ is None


def test_frozen_objects_refuse_changes_and_can_be_copied():
    """Setting or deleting raises `FrozenInstanceError`; `replace`, `copy` and `deepcopy` make objects of their own."""
    value = _frozen(lazy_dataclasses.dataclass)(number=1)

    for change in (lambda: setattr(value, "number", 2), lambda: delattr(value, "number")):
        with pytest.raises(dataclasses.FrozenInstanceError, match="number"):
            change()
    assert dataclasses.replace(value, number=2).number == 2
    assert copy.copy(value) == copy.deepcopy(value) == value
    assert copy.deepcopy(value).many is not value.many


@lazy_dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pickled:
    """A frozen class that can be found by its name."""

    number: int


def test_frozen_objects_survive_pickling():
    """A frozen object that was pickled is equal to the one that comes back."""
    assert pickle.loads(pickle.dumps(Pickled(number=1))) == Pickled(number=1)


def test_methods_of_the_class_itself_stay():
    """A class that has a method of its own keeps it, and one without equality compares by identity."""

    @lazy_dataclasses.dataclass(frozen=True, slots=True, eq=False)
    class Value:
        number: int

        def __repr__(self) -> str:
            return "own"

    assert repr(Value(1)) == "own"
    assert Value(1) != Value(1)
    assert {Value(1): 1}


def test_a_class_is_seen_by_match_and_by_the_functions_of_dataclasses():
    """`match` by place, `fields`, `is_dataclass` and `asdict` work as with the standard library."""
    kind = _mutable(lazy_dataclasses.dataclass)
    value = kind(1, "two")

    match value:
        case kind(number, word):
            assert (number, word) == (1, "two")
        case _:
            pytest.fail("no match by place")
    assert dataclasses.is_dataclass(value)
    assert dataclasses.asdict(kind(1, "two")) == {"number": 1, "word": "two", "total": 2, "seen": [], "named": 1}
    assert [each.name for each in dataclasses.fields(value)] == ["number", "word", "total", "seen", "named"]
