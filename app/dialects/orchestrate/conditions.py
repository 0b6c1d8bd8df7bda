"""Conditions: what must hold before a step is taken (workflow-dsl, `when`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.dialects.orchestrate import variables
from app.domain import plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition with its variables substituted; all that it names must hold."""

    equals: tuple[str, str] | None = None
    """Two texts that must be the same."""
    exists: str | None = None
    """Pattern that must fit at least one file."""
    not_exists: str | None = None
    """Pattern that must fit none."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """Return the patterns that have to be looked up; none where the texts decide already."""
        if self.equals is not None and self.equals[0] != self.equals[1]:
            return ()
        return tuple(dict.fromkeys(pattern for pattern in (self.exists, self.not_exists) if pattern is not None))

    def holds(self, fitting: Mapping[str, int]) -> bool:
        """Tell whether it holds.

        Args:
            fitting: For each of `patterns`, how many files fit it.
        """
        if self.equals is not None and self.equals[0] != self.equals[1]:
            return False
        if self.exists is not None and fitting[self.exists] == 0:
            return False
        return self.not_exists is None or fitting[self.not_exists] == 0


def read(when: Mapping[str, plain.Json], filler: variables.Filler) -> Condition:
    """Return a step's condition; names that stand for nothing are left with the filler."""
    equals = when.get("equals")
    return Condition(
        equals=None if equals is None else (_text(equals["left"], filler), _text(equals["right"], filler)),
        exists=_pattern(when.get("exists"), filler),
        not_exists=_pattern(when.get("not_exists"), filler),
    )


def _text(value: plain.Json, filler: variables.Filler) -> str:
    return variables.written(filler.value(value))


def _pattern(template: str | None, filler: variables.Filler) -> str | None:
    return None if template is None else filler.pattern(template)
