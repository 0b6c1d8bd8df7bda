"""Listings when descriptors run out: complete, or refused for now; never incomplete."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app import errors
from app.tools import globs
from app.tools.workspace import Workspace

PATHS = [f"{folder}/{name}/x.md" for folder in "ab" for name in "cd"]
MOST = 24


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Limit the further descriptors that this process can open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def scanned(root: Path) -> list[str]:
    """List a workspace as tools do."""
    return [file.path for file in Workspace(root).scan().files]


def fitting(root: Path) -> list[str]:
    """List the paths that fit a pattern."""
    return list(globs.fitting(root, "*/*/*.md"))


@pytest.mark.parametrize("listed", [scanned, fitting])
def test_a_list_is_whole_or_put_off(tmp_path: Path, listed: Callable[[Path], list[str]]) -> None:
    """A listing with too few descriptors is complete or fails, for any number of descriptors."""
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    numbers: list[str] = []
    for count in range(MOST):
        with descriptors(count):
            try:
                found = listed(tmp_path)
            except errors.WorkspaceFault as fault:
                numbers.append(fault.detail["errno"])
                continue

        assert sorted(found) == PATHS, count

    assert set(numbers) == {"EMFILE"}
    assert len(numbers) < MOST
