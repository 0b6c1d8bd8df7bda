"""Claims of workspaces by runs that a command executes in its own process."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.engine import stores
from app.services import workspaces
from app.storage import layout, workspace_locks

HERE = "/srv/here"


class Rows:
    """The rows of a project's runs."""

    def __init__(self, *rows: stores.RunSummary) -> None:
        self._rows = rows

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        """Return a page of the runs in a state."""
        found = [row for row in self._rows if row.status == query.status]
        begun = 0 if query.cursor is None else 1 + [row.run_id for row in found].index(query.cursor[1])
        return found[begun : begun + query.limit]

    async def summary(self, run_id: str) -> stores.RunSummary:
        """Return a run's row."""
        for row in self._rows:
            if row.run_id == run_id:
                return row
        raise errors.NotFound(run_id)


def row(run_id: str, **facts: Any) -> stores.RunSummary:
    """Return the row of a run with exclusive use of its workspace."""
    given: dict[str, Any] = {
        "recipe_id": "small", "dialect": "agent_recipes", "status": "running", "created_at": "", "updated_at": "",
        "completed_at": None, "description": "", "labels": {}, "priority": 0, "session_id": "", "parent_run_id": None,
        "error_code": None, "owner": "process", "working_dir": HERE, "exclusive_workspace": True,
    }  # fmt: skip
    return stores.RunSummary(run_id=run_id, **(given | facts))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data directory."""
    (tmp_path / layout.RUNS).mkdir()
    return tmp_path


async def taken(data: Path, *rows: stores.RunSummary, **asked: Any) -> str | None:
    """Claim the workspace for a moment; return its holder (or a placeholder), or None if it was free."""
    with contextlib.closing(workspace_locks.WorkspaceLocks(data)) as locks:
        return await _taken(locks, *rows, **asked)


async def _taken(locks: workspace_locks.WorkspaceLocks, *rows: stores.RunSummary, **asked: Any) -> str | None:
    store: Any = Rows(*rows)
    try:
        await workspaces.WorkspaceClaims(store, locks.acquire).claim(HERE, **asked)
    except errors.Conflict as conflict:
        return conflict.detail["holder"] or "nobody"
    return None


@pytest.mark.parametrize("status", ["running", "waiting", "paused"])
async def test_a_begun_run_of_the_service_holds_its_workspace(data: Path, status: str):
    """A begun run of the service holds its workspace, even while the service is stopped."""
    assert await taken(data, row("r1", owner="service", status=status)) == "r1"


@pytest.mark.parametrize(
    "other",
    [
        row("r1", owner="service", status="pending"),
        row("r1", owner="service", status="done"),
        row("r1", owner="service", working_dir="/srv/there"),
        row("r1", owner="service", exclusive_workspace=False),
        row("r1", owner="foreign"),
        row("r1"),
    ],
)
async def test_other_runs_do_not_hold_the_workspace(data: Path, other: stores.RunSummary):
    """A run that is pending, ended, elsewhere, sharing or of a dead process does not hold the workspace."""
    assert await taken(data, other) is None


async def test_a_living_process_keeps_others_out(data: Path):
    """While a process has the lock, others get the run that it executes; a resumed run does not block itself."""
    with contextlib.closing(workspace_locks.WorkspaceLocks(data)) as locks:
        first = await _taken(locks)
        named = await taken(data, row("r2", owner="foreign"), row("r1"))
        unnamed = await taken(data)
    after = await taken(data, row("r1"), run_id="r1")

    assert (first, named, unnamed, after) == (None, "r1", "nobody", None)


async def test_a_child_enters_and_its_sibling_waits(data: Path):
    """A run may enter the workspace of its ancestor, and siblings exclude one another."""
    parent, child = row("r1"), row("r2", parent_run_id="r1")
    with contextlib.closing(workspace_locks.WorkspaceLocks(data)) as locks:
        assert await _taken(locks) is None
        with contextlib.closing(workspace_locks.WorkspaceLocks(data)) as within:
            entered = await _taken(within, parent, parent_run_id="r1")
            sibling = await taken(data, parent, child, parent_run_id="r1")
            deeper = await taken(data, parent, child, parent_run_id="r2")
            stranger = await taken(data, parent, child)
    served = await taken(data, row("r1", owner="service"), parent_run_id="r1")

    assert (entered, sibling, deeper, served) == (None, "r2", None, None)
    assert stranger in ("r1", "r2")


async def test_a_grandchild_of_a_run_that_shares_may_enter(data: Path):
    """A run may enter the workspace of an ancestor above a sharing run; an unknown ancestor ends the search."""
    top, middle = row("r1", owner="service"), row("r2", parent_run_id="r1", exclusive_workspace=False)

    assert await taken(data, top, middle, parent_run_id="r2") is None
    assert await taken(data, top, parent_run_id="absent") == "r1"


async def test_all_pages_are_looked_through(data: Path):
    """The holder of a workspace is found among any number of runs."""
    others = [row(f"r{number}", owner="service", status="waiting", working_dir="/srv/there") for number in range(2500)]

    assert await taken(data, *others, row("last", owner="service", status="waiting")) == "last"


async def test_an_unwritable_data_directory_is_an_error(data: Path):
    """A data directory that cannot be locked is a configuration error."""
    (data / layout.RUNS).rmdir()
    (data / layout.RUNS).touch()

    with pytest.raises(errors.ConfigurationError, match="cannot be locked"):
        await taken(data)
