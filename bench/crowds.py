"""Crowds: projects with very many finished runs, made in seconds.

The program executes a few runs; the others get folders that share files with them, and rows that the program's own
index writes.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app import clock
from app.domain import runs, states
from app.storage.index import index_port
from app.storage.index.sql import database
from app.storage.index.sql import index as sql_index
from bench import projects

RECIPES = ("draft", "revise")
LABELS = ({"book": "one"}, {"book": "two"})
"""Labels of four in five runs, and labels of the fifth."""

FIRST_AT = datetime(2026, 1, 1, tzinfo=UTC)
"""When the first run of a crowd was accepted; each further run follows a minute later."""

_LINKS = 60_000
"""Number of folders that may share a file; some file systems allow 65,000."""
_CHUNK = 2_000
_STEPS = 10


async def make(project: Path, *, finished: int, whole: bool) -> Path:
    """Make a project with a number of finished runs, unless it exists already, and return it.

    Args:
        whole: Whether the folders of the runs contain files; empty folders are enough for lists.
    """
    done = project / "made"
    if done.exists():
        return project
    shutil.rmtree(project, ignore_errors=True)
    projects.make_project(project, steps=(_STEPS,))
    models = await _executed(project, 1 + finished // _LINKS)
    data = project / ".control-room"
    rows = sql_index.SqlIndex(database.url_of(str(data / "index.db")))
    await rows.start()
    for begin in range(0, finished, _CHUNK):
        numbers = range(begin, min(begin + _CHUNK, finished))
        fresh = [_row(models[0], number) for number in numbers]
        for number, row in zip(numbers, fresh, strict=True):
            model = data / "runs" / models[number // _LINKS].run_id
            _add_folder(data / "runs" / row.summary.run_id, model if whole else None)
        await rows.add_missing(fresh)
    await rows.close()
    done.touch()
    return project


async def _executed(project: Path, count: int) -> list[runs.RunStart]:
    async with projects.opened(project) as application:
        run_ids = [await projects.execute(application, projects.STEPS.format(_STEPS)) for _ in range(count)]
        return [(await application.store.read(run_id)).start for run_id in run_ids]


def _row(model: runs.RunStart, number: int) -> index_port.IndexedRun:
    at = FIRST_AT + timedelta(minutes=number)
    start = dataclasses.replace(
        model,
        run_id=f"{at:%Y%m%dT%H%M%SZ}-{number:06x}",
        created_at=clock.stamp(at),
        recipe_id=RECIPES[_one_of_five(number, 1)],
        labels=LABELS[_one_of_five(number, 2)],
    )
    status = states.RunState.FAILED if number % 10 == 0 else states.RunState.DONE
    code = "step_failed" if status is states.RunState.FAILED else None
    return index_port.row_of(start, status, start.created_at, name=start.run_id, owner="service", error_code=code)


def _one_of_five(number: int, salt: int) -> int:
    return int((number * 2_654_435_761 >> (4 * salt)) % 5 == 0)


def _add_folder(folder: Path, model: Path | None) -> None:
    folder.mkdir()
    if model is not None:
        for name in _files(model):
            os.link(model / name, folder / name)


def _files(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as found:
        yield from (entry.name for entry in found if entry.is_file())
