"""Smoke samples: of several expensive cases of one mechanism, one always runs and the others run with `--long`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def only(smoke: Any, cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parametrized test, all but one of them marked slow.

    Args:
    smoke: The one of the given cases that always runs.
    """
    found = list(cases)
    assert smoke in found, smoke
    return [case if case == smoke else _slow(case) for case in found]


def _slow(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
