"""Dataclasses whose methods are compiled when they are first used.

`dataclasses.dataclass` compiles six methods of each class at its import: for the 500 classes that the service loads,
this was a third of what a start computes. Here all classes share five of the methods, and `__init__` is compiled when
the first object is made; it sets the slots of a frozen object by their descriptors, which is also faster. Fields,
`replace`, `asdict`, `match` and what type checkers see are those of the standard library.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import reprlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        *, slots: Literal[True], frozen: bool = False, kw_only: bool = False, eq: bool = True
    ) -> Callable[[type], type]:
        """Make a dataclass with slots; the parameters are those of `dataclasses.dataclass`."""

        def made(plain: type) -> type:
            own = vars(plain)
            cls: Any = dataclasses.dataclass(
                init=False,
                repr=False,
                eq=False,
                # Where it is not needed, because `__setattr__` would be compiled.
                frozen=frozen and any(map(dataclasses.is_dataclass, plain.__bases__)),
                slots=slots,
                kw_only=kw_only,
            )(plain)
            cls.__dataclass_params__.frozen = frozen
            shared = {"__init__": _compiled_later(cls, frozen), "__repr__": _repr}
            if eq:
                shared |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
            if frozen:
                shared |= {"__setattr__": _refuse_set, "__delattr__": _refuse_delete}
                shared |= {"__getstate__": _state, "__setstate__": _restore}
            for name, method in shared.items():
                # Python itself gives a class with an `__eq__` of its own a `__hash__` that is None.
                if own.get(name) is None:
                    setattr(cls, name, method)
            return cls

        return made


def _compiled_later(cls: type, frozen: bool) -> Callable[..., None]:
    def __init__(self: object, *args: object, **named: object) -> None:  # noqa: N807
        compiled = _initializer(cls, frozen)
        cls.__init__ = compiled  # type: ignore[misc]
        compiled(self, *args, **named)

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return __init__


_ABSENT = object()


def _initializer(cls: Any, frozen: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"_absent": _ABSENT}
    by_place: list[str] = ["self"]
    by_name: list[str] = []
    body: list[str] = []
    for each in dataclasses.fields(cls):
        name, parameter = each.name, each.name
        value = name
        if each.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = each.default
            parameter, value = f"{name}=_default_{name}", name if each.init else f"_default_{name}"
        elif each.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"] = each.default_factory
            made = f"_make_{name}()"
            parameter, value = f"{name}=_absent", f"{made} if {name} is _absent else {name}" if each.init else made
        elif not each.init:
            continue
        if each.init:
            (by_name if each.kw_only else by_place).append(parameter)
        if frozen:
            scope[f"_set_{name}"] = getattr(cls, name).__set__
        body.append(f"_set_{name}(self, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*by_place, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n  " + "\n  ".join(body or ["pass"]), scope)  # noqa: S102
    initializer: Callable[..., None] = scope["__init__"]
    initializer.__qualname__ = f"{cls.__qualname__}.__init__"
    return initializer


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: Any) -> object:
    if other.__class__ is not self.__class__:
        return NotImplemented
    compared = _compared(self.__class__)
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    return hash(_compared(self.__class__)(self))


@functools.cache
def _compared(cls: Any) -> Callable[[Any], Any]:
    names = [each.name for each in dataclasses.fields(cls) if each.compare]
    return operator.attrgetter(*names) if names else lambda _: ()


def _refuse_set(self: object, name: str, _: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
