"""Kills: a process killed between any two writes has lost no answered change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.domain.audit import AuditQuery
from app.domain.decisions import DecisionKind
from app.domain.plans import PlanQuery
from app.domain.states import RunState
from app.engine.stores import RunQuery
from app.storage import crash_points, layout
from tests.architecture import sources
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, SESSION
from tests.unit.storage import writer_processes

ELSEWHERE = ("adopt", "heal", "cut", "repair", "inherit", "project_file")
"""Points of writes that an undisturbed life does not make.

The conformance suite kills at them in memory, and a test of the service at those of the project's files: budgets,
policies, prices and keys.
"""

RARELY = {"storage.commit.before_restore", "storage.create.before_sync", "storage.create.after_sync"}
"""Points that are passed after a power cut, or while the commit log fails."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(1, id="first passings"), pytest.param(1000, id="every passing", marks=pytest.mark.slow)],
)
def swept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Run lives that end at the first passing of each point, or at every one."""
    folder = tmp_path_factory.mktemp("lives")
    command = [sys.executable, "-m", "tests.unit.storage.writer_processes", str(folder), str(request.param)]
    done = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_every_point_of_a_life_is_a_place_to_die(swept: list[dict[str, Any]]) -> None:
    """Each listed point killed a process; a later passing may be left out where two writes became one."""
    expected = {point for point in crash_points.POINTS if point.split(".")[1] not in ELSEWHERE} - RARELY

    assert {life["point"] for life in swept if life["signal"] == 9} == expected
    assert all(life["signal"] == 9 or (life["signal"] == 0 and life["nth"] > 1) for life in swept)


def test_no_manifest_on_disk_is_newer_than_the_slots(swept: list[dict[str, Any]]) -> None:
    """For every point, cache.json contains the slots of the last step in run.json."""
    compared = 0
    for life in swept:
        folder = Path(life["place"]) / layout.run_folder(RUN)
        if (folder / layout.MANIFEST).exists():
            last = {name: _last(folder / name) for name in (layout.MANIFEST, layout.CACHE)}
            compared += 1

            assert last[layout.CACHE] >= last[layout.MANIFEST], life
    assert compared > 10


async def test_answered_changes_survive_a_kill_at_any_point(swept: list[dict[str, Any]]) -> None:
    """For every point, answered creations, steps, decisions, issues, plans and deletions are kept; a run continues."""
    answers: set[str] = set()
    for life in swept:
        place = Path(life["place"])
        told = place.with_suffix(".answers").read_text(encoding="utf-8").split("\n")[:-1]
        store = writer_processes.store_in(place)
        await store.start()
        try:
            await check(store, told)
        except BaseException as error:
            raise AssertionError(f"{life['point']} {life['nth']} after {told}") from error
        finally:
            await store.close()

        assert not [name for name in (place / "runs").iterdir() if name.name.startswith(".new")], life
        answers.update(told)
    assert {"created", "taken", "issue", "document removed", "labelled", "ended", "deleted"} <= answers


async def check(store: Any, told: list[str]) -> None:
    """Compare the disk with the answers."""
    found = await store.create(store_harness.start("second", **writer_processes.KEY))
    unfinished = [run.run_id for run in await store.list_unfinished()]
    if "deleted" in told or not found.existed:
        assert found.run_id == "second"
        assert "created" not in told or "ended" in told
        assert unfinished == ["second"]
        if "created" in told:
            await check_deleted(store)
        return
    loaded = await store.read(RUN)
    answered = [name.removeprefix("step ") for name in told if name.startswith("step ")]
    keys = [record.key for record in loaded.records]

    assert keys[: len(answered)] == answered
    assert len(keys) - len(answered) in (0, 1)
    assert keys == list(writer_processes.STEPS[: len(keys)])
    assert "taken" not in told or loaded.decisions.taken == 1
    assert "ended" not in told or loaded.decisions.status is RunState.DONE
    assert loaded.decisions.ended is not None or unfinished == [RUN]
    assert "issue" not in told or (store._directory.path / "issues" / "iss_1.json").exists()
    changes, _ = await store.audit.page(AuditQuery())
    assert len(changes) - told.count("change") in (0, 1)
    assert all(report["ok"] for report in (await store.maintenance.verify_page("audit/", 10)).reports)
    await check_plan(store, told)
    documents = (await store.documents("triggers").read_all()).documents
    assert "document kept" not in told or documents["kept"] == {"name": "kept"}
    assert "document removed" not in told or "gone" not in documents
    assert "labelled" not in told or loaded.start.labels == writer_processes.LABELS
    assert (await store.maintenance.verify(RUN))["ok"]
    await check_continued(store, keys)


async def check_plan(store: Any, told: list[str]) -> None:
    """Check that the plan is the answered one, or the next one, and that the removed plan is gone."""
    answered = sum(name.startswith("plan ") for name in told)
    found = await store.plans.get("sp_1")
    passing = await store.plans.get("sp_2")
    listed = [plan.session_id for plan in await store.plans.list(PlanQuery())]

    assert (found.revision if found is not None else 0) in (answered, min(answered + 1, 2))
    assert sorted(listed) == [plan.session_id for plan in (found, passing) if plan is not None]
    assert "removed" not in told or (passing is None and await store.plans.was_removed("sp_2"))


async def check_continued(store: Any, keys: list[str]) -> None:
    """Open the run, check that its projections are complete, and continue the run."""
    log = await store.open(RUN)
    await log.flush()
    positions = [event.data["position"] for event in await store.read_events(RUN) if event.type == "step.finished"]
    assert sorted(positions) == list(range(len(keys)))
    for key in keys:
        assert (await store.find_receipt(f"rcpt_{key}"))["key"] == key
    receipts = (store._directory.path / layout.receipts_file(SESSION)).read_text() if keys else ""
    assert receipts.count("\n") == len(keys)
    if log.loaded.decisions.ended is None:
        await log.decide(DecisionKind.TAKEN, {})
        assert (await log.append_step(store_harness.step("z"))).position == len(keys)
        assert await log.decide(DecisionKind.CANCEL_REQUESTED, {})
    await log.close()
    await store.read(RUN)


async def check_deleted(store: Any) -> None:
    """Check that only the receipts of a deleted run are left."""
    with pytest.raises(errors.NotFound):
        await store.read(RUN)
    assert [run.run_id for run in await store.list_runs(RunQuery())] == ["second"]
    for key in writer_processes.STEPS:
        assert (await store.find_receipt(f"rcpt_{key}"))["key"] == key


def _last(snapshot: Path) -> str:
    return str(json.loads(snapshot.read_text(encoding="utf-8")).get("last", "")) if snapshot.exists() else ""
