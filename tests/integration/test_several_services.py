"""Several services on one store in Postgres: each shows within a moment what the others and the workers do."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator

import psycopg
import pytest

from tests.integration import temporal_server

temporal_server.require()

from app import bootstrap  # noqa: E402
from app.services import budgets, event_streams  # noqa: E402

# The engine copies the interval that is changed below when it is imported, and keeps the copy.
from app.temporal import engine, follower  # noqa: E402, F401
from app.worker import shared_ledger  # noqa: E402
from tests.integration import listening, served  # noqa: E402
from tests.integration.test_budgets import DRAFT, USAGE, spent_once  # noqa: E402
from tests.integration.test_event_feed import Stream, following  # noqa: E402
from tests.integration.test_keys import bearer  # noqa: E402
from tests.integration.test_temporal_engine import WORK  # noqa: E402
from tests.integration.test_temporal_machines import Machines, databases, machines  # noqa: E402, F401

NEVER = 3600.0
LISTENERS = "FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"


@pytest.fixture
async def pair(
    machines: Machines,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[listening.Listening, listening.Listening]]:
    """Serve a project on two machines, with a worker on a third; no service polls for changes of the others."""
    for module, name in (
        (follower, "POLL_SECONDS"),
        (follower, "LISTENING_POLL_SECONDS"),
        (event_streams, "TICK_SECONDS"),
    ):
        monkeypatch.setattr(module, name, NEVER)
    await temporal_server.connected(machines.address)
    async with (
        listening.on_a_port(machines.project, **machines.given("one")) as one,
        listening.on_a_port(machines.project, **machines.given("two")) as two,
        bootstrap.build(machines.chosen("worker"), WORK),
    ):
        await temporal_server.until(functools.partial(hear, machines.url))
        yield one, two


async def hear(url: str) -> bool:
    """Return whether both services listen for notifications."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        found = await connection.execute(f"SELECT count(*) {LISTENERS}")
        return await found.fetchone() == (2,)


async def answer(service: served.Served, run_id: str) -> None:
    """Approve the gate of a run."""
    [gate] = (await service.http.get(f"/api/gates?run_id={run_id}")).json()
    answered = await service.http.post(f"/api/gates/{gate['gate_id']}", json={"decision": "approve"})
    assert answered.status_code == 200, answered.text


async def test_each_service_shows_the_runs_of_the_others(pair: tuple[listening.Listening, listening.Listening]):
    """Streams and long polls of one service show a run that another one started and a worker executes."""
    one, two = pair
    async with following(two) as everything:
        run_id = await one.start("asking")
        seen = await everything.until("run.waiting")
        async with two.http.stream("GET", f"/api/runs/{run_id}/events") as opened:
            own = Stream(opened)
            await own.until("run.waiting")
            waiting = await two.show(run_id)
            ending = asyncio.create_task(two.until(run_id, "done"))
            await answer(one, run_id)
            alone = await own.until("run.ended")
        seen += await everything.until("run.ended")
        listed = (await two.http.get("/api/runs")).json()
        shown = await ending

    assert (waiting["status"], shown["status"]) == ("waiting", "done")
    assert seen[0][0] == "run.created"
    assert {event["run_id"] for _, event in seen} == {run_id}
    numbers = [event["seq"] for _, event in seen]
    assert numbers == sorted(set(numbers))
    assert alone[-1] == seen[-1]
    assert [run["status"] for run in listed] == ["done"]


@pytest.mark.slow
async def test_reopened_streams_repeat_no_event(
    pair: tuple[listening.Listening, listening.Listening],
):
    """Missed events come once: of a run at any service, of all runs at the service that gave the id."""
    one, two = pair
    async with following(two) as everything:
        run_id = await one.start("asking")
        seen = await everything.until("run.waiting")
        place, own = everything.last_id, seen[-1][1]["seq"]
    await answer(one, run_id)
    await one.until(run_id, "done")
    async with following(two, last_id=place) as everything:
        later = await everything.until("run.ended")
    async with following(one, last_id=place) as everything:
        foreign = await everything.hear()
    alone = []
    for service in pair:
        headers = {"Last-Event-ID": str(own)}
        async with service.http.stream("GET", f"/api/runs/{run_id}/events", headers=headers) as opened:
            alone.append(await Stream(opened).until("run.ended"))

    assert [event["seq"] for _, event in later if event] == [event["seq"] for _, event in alone[0]]
    assert alone[0] == alone[1]
    assert alone[0][0][1]["seq"] > own
    assert foreign == ("reset", {"reason": "unknown_cursor"})


@pytest.mark.slow
async def test_a_conversation_is_followed_at_any_service(
    pair: tuple[listening.Listening, listening.Listening],
    machines: Machines,  # noqa: F811
):
    """A client receives runs that another service starts in its conversation, and can return to any service."""
    one, two = pair
    machines.project.say("prompt", text="Hello.")
    machines.given("worker")
    async with one.client() as speaking, two.client() as hearing:
        await speaking.say("prompt", text="Hi!", backend="said")
        first = await speaking.until("turn_complete")
        session = {"session_id": first[-1]["session_id"]}
        await hearing.say("subscribe", **session)
        heard = await hearing.until("turn_complete")
        await speaking.say("prompt", text="Again!", **session)
        second = await speaking.until("turn_complete")
        also = await hearing.until("turn_complete")
    async with one.client() as back:
        await back.say("subscribe", **session, after_seq=also[0]["seq"])
        rest = await back.until("turn_complete")

    assert heard == first
    assert also == second
    assert rest == second[1:]


@pytest.mark.slow
async def test_a_service_that_stopped_listening_reads_again(
    pair: tuple[listening.Listening, listening.Listening],
    machines: Machines,  # noqa: F811
):
    """After a lost connection, streams of all runs are reset, and changes committed meanwhile are shown."""
    one, two = pair
    async with following(two) as everything:
        run_id = await one.start("asking")
        await everything.until("run.waiting")
        ending = asyncio.create_task(two.until(run_id, "done"))
        with psycopg.connect(machines.url, autocommit=True) as connection:
            connection.execute("SELECT pg_notify('control_room', x) FROM unnest(ARRAY['', '../é 1 2 3', 'x 9']) x")
            ended = connection.execute(f"SELECT pg_terminate_backend(pid) {LISTENERS}").fetchall()
        await answer(one, run_id)
        [*_, (_, reset)] = await everything.until("reset")
        shown = await ending
        later = await one.start("asking")
        seen = await everything.until("run.waiting")

    assert len(ended) == 2
    assert reset == {"reason": "interrupted"}
    assert shown["status"] == "done"
    assert later in {event["run_id"] for _, event in seen}


async def keyed(service: served.Served, name: str, role: str, *, by: str | None = None) -> str:
    """Add a key at a service and return its secret."""
    headers = {} if by is None else bearer(by)
    answer = await service.http.post("/api/keys", json={"name": name, "role": role}, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["secret"])


async def comes(service: served.Served, secret: str, status: int) -> None:
    """Wait until a service answers a request with this key as expected."""

    async def answers() -> bool:
        return (await service.http.get("/api/runs", headers=bearer(secret))).status_code == status

    await temporal_server.until(answers)


async def test_a_key_counts_at_every_service(pair: tuple[listening.Listening, listening.Listening]):
    """A key that one service adds is valid at the other, and so is its revocation; concurrent additions all succeed."""
    one, two = pair
    root = await keyed(one, "root", "admin")
    await comes(two, root, 200)
    many = [keyed(service, f"{n}-{m}", "viewer", by=root) for n in range(4) for m, service in enumerate(pair)]
    added = await asyncio.gather(*many)
    for secret in added:
        await comes(one, secret, 200)
        await comes(two, secret, 200)
    revoked = await one.http.delete("/api/keys/0-1", headers=bearer(root))
    await comes(two, added[1], 401)
    listed = await two.http.get("/api/keys", headers=bearer(root))

    assert revoked.status_code == 204
    assert [key["name"] for key in listed.json()] == ["0-0", *(f"{n}-{m}" for n in (1, 2, 3) for m in (0, 1)), "root"]


@pytest.mark.slow
async def test_a_budget_is_spent_by_all_workers_together(
    machines: Machines,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
):
    """Runs on two workers keep within the calls of a budget; a raise at another service continues them."""
    monkeypatch.setattr(budgets, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(shared_ledger, "WAIT_SECONDS", 0.0)
    machines.project.say("*", text="Kael stepped off the last ferry and saw that the lantern was dark.", usage=USAGE)
    await temporal_server.connected(machines.address)
    async with (
        served.on_a_port(machines.project, **machines.given("one")) as one,
        served.on_a_port(machines.project, **machines.given("two")) as two,
    ):
        await one.http.put("/api/budgets/drafts", json={"recipe_id": "draft", "limits": {"calls": 5}})
        async with (
            bootstrap.build(machines.chosen("a"), WORK),
            bootstrap.build(machines.chosen("b"), WORK),
        ):
            await spent_once(one, two, calls=5)


@pytest.mark.slow
async def test_calls_of_unknown_price_take_turns_on_all_workers(
    machines: Machines,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
):
    """Under a budget of money, calls of runs on two workers never overlap, and every run ends as done."""
    monkeypatch.setattr(budgets, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(shared_ledger, "WAIT_SECONDS", 0.5)
    text = "Kael stepped off the last ferry and saw that the lantern was dark."
    machines.project.say("*", text=text, usage=USAGE, delay_seconds=0.3)
    await temporal_server.connected(machines.address)
    async with (
        served.on_a_port(machines.project, **machines.given("one")) as one,
        bootstrap.build(machines.chosen("a"), WORK) as worker,
        bootstrap.build(machines.chosen("b"), WORK),
    ):
        await one.http.put("/api/budgets/drafts", json={"recipe_id": "draft", "limits": {"cost_usd": 100}})
        begun = [await one.start(**DRAFT) for _ in range(3)]
        for run_id in begun:
            await one.until(run_id, "done", "failed")
        loaded = [await worker.store.read(run_id) for run_id in begun]

    lines = [record.line for each in loaded for record in each.records if record.line.get("agent_id")]
    calls = sorted((line["started_at"], line["completed_at"]) for line in lines)
    assert len(calls) == 6
    assert all(ended <= begins for (_, ended), (begins, _) in itertools.pairwise(calls))
    assert {each.decisions.status.value for each in loaded} == {"done"}
