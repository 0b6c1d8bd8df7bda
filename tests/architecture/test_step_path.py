"""The path of a step stays short: a newcomer can follow it, and every call on it costs time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.architecture import step_path

MOST_STEP_CALLS = 99
"""Calls in `app` for a further step of a run."""

MOST_STEP_MODULES = 20
"""Modules of `app` that a further step crosses."""

MOST_POST_MODULES = 25
"""Modules of `app` that `POST /api/runs` crosses."""

counted_frames = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="other versions of Python count comprehensions and generators differently"
)


@counted_frames
def test_the_path_of_a_step_is_short(tmp_path: Path) -> None:
    """A request to start a run and each of its steps cross a limited number of functions and modules."""
    path = step_path.measure(tmp_path)

    assert len(path.post.modules) <= MOST_POST_MODULES, sorted(path.post.modules)
    assert len(path.step.modules) <= MOST_STEP_MODULES, sorted(path.step.modules)
    assert path.step.calls <= MOST_STEP_CALLS
