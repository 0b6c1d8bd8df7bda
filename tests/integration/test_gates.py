"""Gates over HTTP: the inbox, the answers, and when an answer is valid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from app import clock
from app.engine import stores
from app.storage.runs.disk_store import DiskStore
from tests.integration import asking, served
from tests.integration.asking import SHIP
from tests.integration.project import Project


@pytest.fixture
async def asked(project: Project) -> AsyncIterator[asking.Asked]:
    """Return the service of a project whose recipe `ship` asks a person."""
    asking.add(project, "ship", *SHIP)
    async with asking.in_process(project) as service:
        yield service


async def test_an_unpause_of_a_waiting_run_names_its_state(asked: asking.Asked) -> None:
    """A run that waits for an answer refuses an unpause and names its state `waiting`."""
    run_id = await asked.start("ship")
    await asked.asks(run_id)
    answer = await asked.http.post(f"/api/runs/{run_id}/unpause")

    assert answer.json()["detail"] == f"run {run_id} is waiting; only a paused run is unpaused"
    assert answer.json()["facts"]["status"] == "waiting"


async def test_a_run_waits_before_the_service_has_put_it_back(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a start with many gates, each run is shown as waiting from the start, before the service has loaded it."""
    asking.add(project, "ship", *SHIP)
    async with asking.in_process(project) as service:
        run_id = await service.start("ship")
        await service.until(run_id, "waiting")
    reading, later = asyncio.Event(), asyncio.Event()
    read_at_once = DiskStore.read_sound

    async def read_late(store: DiskStore, run_ids: Sequence[str]) -> list[stores.Loaded]:
        reading.set()
        await later.wait()
        return await read_at_once(store, run_ids)

    monkeypatch.setattr(DiskStore, "read_sound", read_late)
    async with asking.in_process(project) as service:
        await asyncio.wait_for(reading.wait(), served.WAIT_SECONDS)
        shown, (row,) = await service.show(run_id), (await service.http.get("/api/runs")).json()
        why = (await service.http.get(f"/api/runs/{run_id}/why")).json()
        later.set()
        gate = await service.asks(run_id)
        await service.answer(gate, "approve")
        ended = await service.until(run_id, "done", "failed")

    assert (shown["status"], row["status"], why["status"], ended["status"]) == ("waiting",) * 3 + ("done",)
    assert [cause["kind"] for cause in why["chain"]] == ["gate"]


async def test_a_question_is_shown_and_answered(asked: asking.Asked) -> None:
    """The run waits and shows the gate's id; the answer is confirmed and durable, and the run continues to its end."""
    run_id = await asked.start("ship", labels={"book": "one"})
    shown = await asked.until(run_id, "waiting")
    (gate,) = await asked.gates()

    assert shown["steps"][-1]["gate_id"] == gate["gate_id"]
    assert gate == {
        "gate_id": gate["gate_id"],
        "run_id": run_id,
        "recipe_id": "ship",
        "key": "ship",
        "status": "open",
        "prompt": "Ship it?",
        "options": ["approve", "deny"],
        "asked_at": gate["asked_at"],
        "expires_at": None,
        "default": None,
        "shown_sha256": gate["shown_sha256"],
        "decision": None,
        "message": None,
        "by_default": None,
        "denied": None,
        "decided_at": None,
        "decided_by": None,
    }

    answer = await asked.answer(gate, "approve", message="well done", shown_sha256=gate["shown_sha256"])
    decided = answer.json()

    assert answer.status_code == 200
    assert decided["decided_at"] is not None
    told = {"status": "decided", "decision": "approve", "message": "well done", "by_default": False, "denied": False}
    author = {"name": None, "claimed": False, "via": "local"}
    assert decided == gate | told | {"decided_at": decided["decided_at"], "decided_by": author}
    assert (await asked.until(run_id, "done", "failed"))["status"] == "done"
    assert await asked.gates() == []
    assert await _shown(asked, gate["gate_id"]) == decided
    detail = (await asked.http.get(f"/api/gates/{gate['gate_id']}")).json()

    assert detail["shown"] == [{"name": "part 1", "kind": "text", "text": gate["prompt"], "truncated": False}]
    assert (detail["asked_by"]["recipe_id"], detail["asked_by"]["key"]) == ("ship", gate["key"])
    assert detail["asked_by"]["session_plan_task_id"] is None


async def _shown(asked: asking.Asked, gate_id: str) -> dict[str, Any]:
    """Return a gate as lists show it."""
    found = (await asked.http.get(f"/api/gates/{gate_id}")).json()
    return {name: value for name, value in found.items() if name not in ("shown", "asked_by")}


async def test_the_first_answer_counts(asked: asking.Asked) -> None:
    """One of ten concurrent answers is accepted; the refusals name the accepted one."""
    gate = await asked.asks(await asked.start("ship"))
    decisions = ["approve", "deny"] * 5
    answers = await asyncio.gather(*(asked.answer(gate, decision) for decision in decisions))
    taken = [answer.json()["decision"] for answer in answers if answer.status_code == 200]
    refused = [answer.json() for answer in answers if answer.status_code == 409]

    assert len(taken) == 1
    assert {problem["code"] for problem in refused} == {"gate_decided"}
    assert {problem["facts"]["gate"]["decision"] for problem in refused} == set(taken)


async def test_the_same_answer_may_come_twice(asked: asking.Asked) -> None:
    """Under one key the same answer is accepted again, at once or later; another answer is a conflict."""
    gate = await asked.asks(await asked.start("ship"))
    twice = await asyncio.gather(*(asked.answer(gate, "approve", key="k", message="yes") for _ in range(2)))
    again = await asked.answer(gate, "approve", key="k", message="yes")
    others = [
        await asked.answer(gate, "approve", key="k", message="no"),
        await asked.answer(gate, "deny", key="k", message="yes"),
        await asked.answer(gate, "approve", key="other", message="yes"),
        await asked.answer(gate, "approve", message="yes"),
    ]

    assert [answer.status_code for answer in (*twice, again)] == [200, 200, 200]
    assert [answer.json() for answer in twice] == [again.json()] * 2
    assert [(answer.status_code, answer.json()["code"]) for answer in others] == [(409, "gate_decided")] * 4


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"decision": "perhaps"}, 400, "unknown_decision"),
        ({"decision": "approve", "shown_sha256": "0" * 64}, 409, "gate_lapsed"),
        ({"decision": "approve", "shown_sha256": "0"}, 400, "request_invalid"),
        ({"decision": 1}, 400, "request_invalid"),
        ({}, 400, "request_invalid"),
        ({"decision": "approve", "mesage": "x"}, 400, "request_invalid"),
        ({"decision": "approve", "message": "x" * 10_001}, 400, "request_invalid"),
    ],
)
async def test_an_invalid_answer_is_refused(asked: asking.Asked, body: Any, status: int, code: str) -> None:
    """An invalid answer is refused with the reason, and the gate stays open."""
    gate = await asked.asks(await asked.start("ship"))
    answer = await asked.http.post(f"/api/gates/{gate['gate_id']}", json=body)

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    if code == "unknown_decision":
        assert answer.json()["facts"]["options"] == ["approve", "deny"]
        assert "approve, deny" in answer.json()["detail"]
    assert await asked.gates() == [gate]


@pytest.mark.parametrize("gate_id", ["x", "x.000000000000", "..000000000000", "20260210T143000Z-k3x9af.738619ff239d"])
async def test_an_unknown_gate_is_not_found(asked: asking.Asked, gate_id: str) -> None:
    """An unknown gate id is a 404 in any form, for reading and for answering."""
    run_id = await asked.start("ship")
    await asked.until(run_id, "waiting")
    for unknown in (gate_id, f"{run_id}.000000000000"):
        answers = [
            await asked.http.get(f"/api/gates/{unknown}"),
            await asked.http.post(f"/api/gates/{unknown}", json={"decision": "approve"}),
        ]

        assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(404, "gate_not_found")] * 2


async def test_the_inbox_is_filtered_and_paged(asked: asking.Asked) -> None:
    """Run, recipe, label and session filter the inbox; pages follow one another without gap, also within a run."""
    branches = {name: [{"gate": name}] for name in ("a", "b", "c")}
    asking.add(asked.project, "many", {"gather": branches})
    first = await asked.start("ship", labels={"book": "one"}, session_id="one")
    second = await asked.start("many", labels={"book": "two"}, session_id="two")
    for run_id in (first, second):
        await asked.until(run_id, "waiting")
    whole = await asked.gates()

    assert {(gate["run_id"], gate["key"]) for gate in whole} == {(first, "ship"), *((second, key) for key in "abc")}
    assert [gate["key"] for gate in await asked.gates(recipe_id="ship")] == ["ship"]
    assert [gate["run_id"] for gate in await asked.gates(label="book:two")] == [second] * 3
    assert [gate["run_id"] for gate in await asked.gates(run_id=first)] == [first]
    assert [gate["run_id"] for gate in await asked.gates(session_id="one")] == [first]
    for nothing in ({"run_id": "nobody"}, {"label": "book:three"}, {"recipe_id": "draft"}, {"session_id": "x"}):
        assert await asked.gates(**nothing) == []

    paged, address = [], "/api/gates?limit=1"
    while address:
        page = await asked.http.get(address)
        paged += page.json()
        address = page.links.get("next", {}).get("url", "")

    assert paged == whole
    for wrong in ("cursor=x", "limit=0", "limit=1001", "status=open", "label=x"):
        assert (await asked.http.get(f"/api/gates?{wrong}")).status_code == 400


async def test_a_paused_run_does_not_ask(asked: asking.Asked) -> None:
    """The gate of a paused run leaves the inbox, refuses answers with the reason, and comes back unchanged."""
    run_id = await asked.start("ship")
    gate = await asked.asks(run_id)
    await asked.http.post(f"/api/runs/{run_id}/pause")
    await asked.until(run_id, "paused")
    refused = await asked.answer(gate, "approve")

    assert await asked.gates() == []
    assert await _shown(asked, gate["gate_id"]) == gate | {"status": "paused"}
    assert (refused.status_code, refused.json()["code"]) == (409, "wrong_state")

    await asked.http.post(f"/api/runs/{run_id}/unpause")
    await asked.until(run_id, "waiting")

    assert await asked.gates() == [gate]


async def test_a_paused_gate_whose_time_is_over_asks_no_more(asked: asking.Asked) -> None:
    """An answer to the gate of a paused run is refused with what the run will do: ask again, or take the default."""
    asking.add(asked.project, "timed", {"gate": "ship", "default": "deny", "expires_seconds": 600})
    run_id = await asked.start("timed")
    gate = await asked.asks(run_id)
    await asked.http.post(f"/api/runs/{run_id}/pause")
    await asked.until(run_id, "paused")
    early = await asked.answer(gate, "approve")
    asked.application.gates._clock = clock.FakeClock(clock.instant(gate["expires_at"]))
    late = await asked.answer(gate, "approve")

    assert early.json()["detail"] == f"the run {run_id} is paused; it asks again when it continues"
    assert late.json()["detail"] == (
        f"the run {run_id} is paused; the gate takes its default deny, since its time is over, when it continues"
    )
    assert (early.status_code, late.status_code) == (409, 409)


async def test_a_resume_from_an_earlier_step_asks_again(asked: asking.Asked) -> None:
    """A resume from an earlier step asks again; the old gate shows its answer and refuses further ones."""
    asking.add(asked.project, "late", *SHIP[:2], {"check": "x", "path": "X"})
    run_id = await asked.start("late")
    old = await asked.asks(run_id)
    await asked.answer(old, "approve", key="k")
    await asked.until(run_id, "failed")
    asked.project.write("X", "there")
    await asked.http.post(f"/api/runs/{run_id}/resume", json={"from": "look"})
    await asked.until(run_id, "waiting")
    (new,) = await asked.gates()
    late = await asked.answer(old, "approve", key="k")
    shown = (await asked.http.get(f"/api/gates/{old['gate_id']}")).json()

    assert new["gate_id"] != old["gate_id"]
    assert (late.status_code, late.json()["code"]) == (409, "gate_lapsed")
    assert (shown["status"], shown["decision"]) == ("lapsed", "approve")

    await asked.answer(new, "approve")

    assert (await asked.until(run_id, "done", "failed"))["status"] == "done"


async def test_a_gate_lapses_with_its_run(asked: asking.Asked) -> None:
    """The gate of a cancelled run is not in the inbox, refuses an answer, and says why it cannot be shown."""
    run_id = await asked.start("ship")
    gate = await asked.asks(run_id)
    await asked.http.post(f"/api/runs/{run_id}/cancel")
    await asked.until(run_id, "cancelled")
    late = await asked.answer(gate, "approve")

    assert await asked.gates() == []
    assert (late.status_code, late.json()["code"]) == (409, "gate_lapsed")
    shown = await asked.http.get(f"/api/gates/{gate['gate_id']}")
    nowhere = await asked.http.get(f"/api/gates/{run_id}.0123456789ab")
    assert (shown.status_code, shown.json()["code"]) == (404, "gate_not_found")
    assert shown.json()["detail"].endswith("its run has ended or has asked again since")
    assert nowhere.json()["detail"].startswith("there is no gate")


async def test_an_answer_that_a_cancel_overtakes_has_lapsed(
    asked: asking.Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate that a cancel closes between the reading and the writing of an answer is lapsed, and not unknown."""
    run_id = await asked.start("ship")
    gate = await asked.asks(run_id)
    votes = asked.application.gates._votes
    vote = votes.vote

    async def cancel_first(*args: Any) -> Any:
        await asked.application.runs.cancel(run_id)
        await asked.application.engine.ended(run_id)
        return await vote(*args)

    monkeypatch.setattr(votes, "vote", cancel_first)
    late = await asked.answer(gate, "approve")

    assert (late.status_code, late.json()["code"]) == (409, "gate_lapsed")


async def test_a_denial_is_final(asked: asking.Asked) -> None:
    """A run whose gate was denied fails, and a resume does not pass the gate."""
    run_id = await asked.start("ship")
    gate = await asked.asks(run_id)
    denied = await asked.answer(gate, "deny", message="not yet")
    shown = await asked.until(run_id, "failed")

    assert denied.json()["denied"] is True
    assert shown["error"]["code"] == "denied"
    for body in ({}, {"from": "ship"}, {"from": "look"}, {"recipe": "current"}):
        refused = await asked.http.post(f"/api/runs/{run_id}/resume", json=body)

        assert (refused.status_code, refused.json()["code"]) == (409, "gate_denied")
        assert refused.json()["facts"]["gate_id"] == gate["gate_id"]


async def test_questions_are_streamed(asked: asking.Asked) -> None:
    """The event stream of a run contains the question and the answer."""
    run_id = await asked.start("ship")
    gate = await asked.asks(run_id)
    await asked.answer(gate, "approve", message="well done")
    await asked.until(run_id, "done")
    stream = (await asked.http.get(f"/api/runs/{run_id}/events")).text
    told = [block for block in stream.split("\n\n") if "event: gate." in block]

    assert [block.split("event: ")[1].split("\n")[0] for block in told] == ["gate.opened", "gate.decided"]
    assert all(gate["gate_id"] in block for block in told)
    assert "Ship it?" in told[0]
    assert "well done" in told[1]


async def test_gates_are_there_after_a_restart(project: Project) -> None:
    """After a restart the inbox is the same at once, and accepts answers while no capacity is free."""
    asking.add(project, "ship", *SHIP)
    async with asking.in_process(project) as asked:
        run_ids = [await asked.start("ship") for _ in range(3)]
        for run_id in run_ids:
            await asked.until(run_id, "waiting")
        before = await asked.gates()
    async with asking.in_process(project, max_running=1) as asked:
        after = await asked.gates()

        assert len(before) == 3
        assert after == before

        answers = [await asked.answer(gate, "approve") for gate in before]

        assert [answer.status_code for answer in answers] == [200] * 3
        for run_id in run_ids:
            assert (await asked.until(run_id, "done", "failed"))["status"] == "done"


@pytest.mark.slow
async def test_a_default_is_taken_in_time_after_a_restart(project: Project) -> None:
    """The time limit of a gate continues while no service runs; its default is recorded as a default."""
    steps = ({"gate": "ship", "default": "deny", "expires_seconds": 4},)
    asking.add(project, "timed", *steps)
    async with asking.in_process(project) as asked:
        run_id = await asked.start("timed")
        gate = await asked.asks(run_id)
    async with asking.in_process(project) as asked:
        await asked.until(run_id, "failed")
        shown = (await asked.http.get(f"/api/gates/{gate['gate_id']}")).json()

        assert (shown["decision"], shown["by_default"], shown["denied"]) == ("deny", True, True)
        assert shown["expires_at"] == gate["expires_at"]
        assert shown["decided_at"] >= gate["expires_at"]
        assert (await asked.answer(gate, "approve")).json()["code"] == "gate_decided"
