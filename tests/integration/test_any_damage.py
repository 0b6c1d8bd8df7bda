"""For any damage in a run's folder, all answers report the same, no poll hangs, and an order ends the problem."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app.api import polling
from app.engine.maintenance_port import Verification
from app.services import event_streams
from tests.integration import damaging, served

ORDERS = ("cancel", "resume", "repair", "delete")
NAMES = (*damaging.AUTHORITY, "run.json", "cache.json", "events.jsonl", "blob", "log")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> damaging.Runs:
    """Create a project with a run in each state."""
    return asyncio.run(damaging.made(tmp_path_factory.mktemp("damaged")))


@pytest.fixture(scope="module", autouse=True)
def impatient() -> Iterator[None]:
    """Shorten the interval at which streams check a run without an ending again; otherwise each waits three seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_streams, "TICK_SECONDS", 0.05)
        yield


# Cases are independent of one another and slow, so shrinking them is not worth the time.
PHASES = (Phase.explicit, Phase.generate)
CASES = st.fixed_dictionaries(
    {state: st.tuples(st.sampled_from(NAMES), st.sampled_from(sorted(damaging.WAYS))) for state in damaging.STATES}
)


@given(damage=CASES, live=st.booleans(), orders=st.permutations(ORDERS))
@settings(max_examples=6, phases=PHASES, suppress_health_check=[HealthCheck.too_slow])
def test_all_agree(runs: damaging.Runs, damage: Any, live: bool, orders: list[str]) -> None:
    """All answers agree if a file of each run is damaged before the service starts or while it runs."""
    asyncio.run(check(runs, damage, live, orders))


@pytest.mark.parametrize("live", [False, True])
def test_a_file_of_a_terabyte_takes_no_memory(runs: damaging.Runs, live: bool) -> None:
    """A sparse file in place of each kind of file is reported like any other damage, and never loaded."""
    way = "a terabyte of nothing"
    for names in (NAMES[: len(damaging.STATES)], NAMES[-len(damaging.STATES) :]):
        damage = {state: (name, way) for state, name in zip(damaging.STATES, names, strict=True)}
        asyncio.run(check(runs, damage, live, list(ORDERS)))


@pytest.mark.slow
@pytest.mark.timeout(3000)
@given(damage=CASES, live=st.booleans(), orders=st.permutations(ORDERS))
@settings(max_examples=120, phases=PHASES, suppress_health_check=[HealthCheck.too_slow])
def test_all_agree_on_much_more(runs: damaging.Runs, damage: Any, live: bool, orders: list[str]) -> None:
    """All answers agree on many more cases of damage."""
    asyncio.run(check(runs, damage, live, orders))


async def check(runs: damaging.Runs, damage: dict[str, tuple[str, str]], live: bool, orders: list[str]) -> None:
    """Damage a file of each run, and check the answers of the service."""
    runs.put_back()
    found = {} if live else damaged(runs, damage, live=False)
    async with served.in_process(runs.project, stop_grace_seconds=0) as service:
        await settled(service, runs)
        if live:
            found = damaged(runs, damage, live=True)
        first = await listed(service)
        shown = {state: await service.show(run_id) for state, run_id in runs.ids.items()}
        second = await listed(service)
        for state, run_id in runs.ids.items():
            case = (state, damage[state], live)
            told = (shown[state]["status"], (shown[state]["error"] or {}).get("code"))

            assert second[run_id] == told, case
            assert first[run_id] == told or damage[state][0] == "blob", case

            report = (await service.http.get(f"/api/runs/{run_id}/verification")).json()

            if not is_written(state, live):
                assert report["state"] == found[state]["state"], (case, report, found[state])

        await asyncio.gather(*(polls_end(service, each) for each in shown.values()))
        for state, run_id in runs.ids.items():
            await goes_out(service, run_id, orders, (state, damage[state], live))


def is_written(state: str, live: bool) -> bool:
    """Return whether a process writes a run's files meanwhile, so that evidence of lost lines may follow later."""
    return live and state in ("waiting", "interrupted")


def damaged(runs: damaging.Runs, damage: dict[str, tuple[str, str]], *, live: bool) -> dict[str, Verification]:
    """Damage a file of each run, and return the correct findings of each verification."""
    found = {}
    for state, (name, way) in damage.items():
        path = file_of(runs.folder(state), name)
        if path is not None:
            damaging.WAYS[way](path)
        found[state] = damaging.report(runs, state)
        changed = name if path is None else str(path.relative_to(runs.folder(state)))

        seen = is_written(state, live) or damaging.is_seen(runs, state, changed, found[state])
        assert seen, (state, name, way, found[state])
    return found


def file_of(folder: Path, name: str) -> Path | None:
    """Return a file of a run."""
    if name in ("blob", "log"):
        found = sorted((folder / f"{name}s").glob("*"))
        return found[0] if found else None
    return folder / name


async def settled(service: served.Served, runs: damaging.Runs) -> None:
    """Wait until every unfinished run has reached its final place."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while not await is_settled(service, runs):
            await served.moment()


async def is_settled(service: served.Served, runs: damaging.Runs) -> bool:
    """Return whether the interrupted run performs its step and the waiting one asks, unless they failed or paused."""
    performing = {agent["run"] for agent in (await service.http.get("/api/agents")).json() if agent["run"]}
    active = performing | {gate["run_id"] for gate in (await service.http.get("/api/gates")).json()}
    rows, load = await listed(service), (await service.http.get("/readyz")).json()
    if load["queued"] or load["running"] > len(performing) or rows[runs.ids["waiting"]][0] == "running":
        # The waiting run is being loaded, and changes its state once more before it asks.
        return False
    moving = [runs.ids[state] for state in ("interrupted", "waiting")]
    return all(run_id in active or rows[run_id][0] in ("failed", "paused") for run_id in moving)


async def listed(service: served.Served) -> dict[str, tuple[str, str | None]]:
    """Return each run's entry in the list."""
    answer = await service.http.get("/api/runs")
    assert answer.status_code == 200, answer.text
    return {run["run_id"]: (run["status"], run["error_code"]) for run in answer.json()}


async def polls_end(service: served.Served, shown: dict[str, Any]) -> None:
    """Request a run and its parts in every way that may wait."""
    path, over = f"/api/runs/{shown['run_id']}", shown["status"] in ("done", "failed", "cancelled")
    async with asyncio.timeout(polling.MOST_WAIT_SECONDS - 10):
        polled = await service.http.get(f"{path}?wait={polling.MOST_WAIT_SECONDS if over else 0.05}")
        if over:
            stream = await service.http.get(f"{path}/events")
            assert stream.status_code == 200
        for part in ("steps", "logs", "cache/draft"):
            assert (await service.http.get(f"{path}/{part}")).status_code < 500, part
    assert polled.json()["status"] == shown["status"]


async def goes_out(service: served.Served, run_id: str, orders: list[str], case: object) -> None:
    """Send orders until the service carries one out, and wait until list and detail agree again."""
    refused = {}
    for order in orders:
        path = f"/api/runs/{run_id}"
        sent = service.http.delete(path) if order == "delete" else service.http.post(f"{path}/{order}", json={})
        answer = await sent
        assert answer.status_code < 500, (case, order, answer.text)
        if answer.is_success:
            break
        refused[order] = answer.json()["code"]
    else:
        raise AssertionError((case, refused))
    async with asyncio.timeout(served.WAIT_SECONDS):
        while not await agrees(service, run_id):
            await served.moment()


async def agrees(service: served.Served, run_id: str) -> bool:
    """Return whether list and detail show the same."""
    answer = await service.http.get(f"/api/runs/{run_id}")
    row = (await listed(service)).get(run_id)
    if answer.status_code == 404:
        return row is None
    return row is not None and row[0] == answer.json()["status"]
