"""The inbox over a pool in memory: its cost, and its gates in a process that does not execute runs."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain import gates, states
from app.services import gate_inbox
from tests.unit.worker import pools, toys

ASKING: tuple[toys.Step, ...] = ({"tool": "one"}, {"gate": "ask"})


def box(bench: pools.Bench) -> gate_inbox.GateInbox:
    """Return the inbox of a bench."""
    return gate_inbox.GateInbox(store=bench.store, engine=bench.pool, drivers=bench.dialects)


async def waiting(bench: pools.Bench, count: int) -> list[str]:
    """Return a number of runs that wait at a gate."""
    run_ids = [await bench.submit(*ASKING) for _ in range(count)]
    for run_id in run_ids:
        await bench.shown(run_id, states.RunState.WAITING)
    await pools.idle()
    return run_ids


def count(bench: pools.Bench, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that records every query to the store from now on."""
    asks: list[str] = []
    for name in ("list_runs", "read", "summary", "read_blob"):
        monkeypatch.setattr(bench.store, name, _noted(getattr(bench.store, name), name, asks))
    return asks


def _noted(ask: Any, name: str, asks: list[str]) -> Any:
    async def noted(*args: Any) -> Any:
        asks.append(name)
        return await ask(*args)

    return noted


@pytest.mark.slow
async def test_a_thousand_open_gates_cost_a_few_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inbox with a thousand gates of a service comes from memory: three index queries and no read of a folder."""
    bench = await pools.Bench(kept_loaded=2000).open()
    run_ids = await waiting(bench, 1000)
    asks = count(bench, monkeypatch)
    found, more = await box(bench).page(gate_inbox.GateQuery(limit=1000))

    assert {gate.run_id for gate in found} == set(run_ids)
    assert (len(found), more) == (1000, False)
    assert asks == ["list_runs"] * 3

    await bench.close()


async def test_only_folders_of_the_pages_runs_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that does not execute runs reads only the folders of the page's runs, the oldest first."""
    bench = await pools.Bench().open()
    run_ids = await waiting(bench, 20)
    before, _ = await box(bench).page(gate_inbox.GateQuery())
    await bench.crash()
    await bench.restart(recover=False)
    asks = count(bench, monkeypatch)
    found, more = await box(bench).page(gate_inbox.GateQuery(limit=5))

    assert found == before[:5]
    assert more
    assert asks.count("read") == 6

    rest, more = await box(bench).page(gate_inbox.GateQuery(cursor=gate_inbox.position(found[-1])))

    assert found + rest == before
    assert [gate.run_id for gate in before] == sorted(run_ids)
    assert not more

    await bench.close()


async def test_a_run_that_works_on_beside_its_question_is_found() -> None:
    """A gate in one branch is open while another branch is busy, also after a crash."""
    bench = await pools.Bench().open()
    bench.toolbox.hold("slow")
    await bench.submit({"gather": {"a": [{"gate": "ask"}], "b": [{"agent": "slow"}]}})
    await bench.toolbox.begun("slow")
    await bench.until(lambda: bool(bench.pool.open_gates()))
    before, _ = await box(bench).page(gate_inbox.GateQuery())
    await bench.crash()
    await bench.restart(recover=False)
    after, _ = await box(bench).page(gate_inbox.GateQuery())

    assert [gate.key for gate in before] == ["ask"]
    assert after == before

    await bench.close()


async def test_an_answer_leaves_the_inbox_at_once() -> None:
    """An answered gate is not shown, even before the index has the answer."""
    bench = await pools.Bench().open()
    (run_id,) = await waiting(bench, 1)
    await pools.soon(bench.pool.deliver(run_id, "ask", gates.Answer(decision="approve")))

    assert await box(bench).page(gate_inbox.GateQuery()) == ([], False)

    await bench.close()
