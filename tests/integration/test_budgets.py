"""Limits of runs and budgets of the project: calls of agents are reserved and settled; runs are parked and resumed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.engine import stores
from app.services import budgets
from app.storage import folder_store
from tests.integration import scheduled, served
from tests.integration.project import Project

ARGS = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
USAGE = {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.25}
DRAFT: dict[str, Any] = {"recipe_id": "draft", "args": ARGS}


async def spent_once(one: served.Served, two: served.Served, calls: int) -> None:
    """Let four runs exceed a budget together, and raise the budget at another service.

    Each run makes two calls.

    Args:
        calls: Calls that the budget allows at first.
    """
    begun = [await one.start(**DRAFT) for _ in range(4)]
    shown = [await two.until(run_id, "paused", "done", "failed") for run_id in begun]
    (stands,) = (await two.http.get("/api/budgets")).json()
    await two.http.put("/api/budgets/drafts", json={"recipe_id": "draft", "limits": {"calls": 8}})
    after = [await one.until(run_id, "done", "failed") for run_id in begun]
    (spent,) = (await one.http.get("/api/budgets")).json()

    assert {run.get("reason") for run in shown if run["status"] == "paused"} == {"budget_exhausted"}
    assert stands["used"]["calls"] <= calls
    assert {run["status"] for run in after} == {"done"}
    assert (spent["used"]["calls"], spent["left"]) == (8, {"calls": 0})


async def limited(service: served.Served, **limits: float) -> str:
    """Start a run with limits that makes two calls of agents."""
    answer = await service.http.post("/api/runs", json=DRAFT | {"limits": limits})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["run_id"])


@pytest.fixture
def paid(project: Project) -> Project:
    """Return a project in which every reply costs a quarter of a dollar and 120 tokens."""
    project.say("*", text="Kael stepped off the last ferry and saw that the lantern was dark.", usage=USAGE)
    return project


@pytest.mark.parametrize(
    ("limits", "limit", "left"),
    [({"calls": 1}, "calls", 0), ({"cost_usd": 0.25}, "cost_usd", 0), ({"tokens": 120}, "tokens", 0)],
)
async def test_a_run_parks_at_its_limit(
    paid: Project, service: served.Served, limits: dict[str, float], limit: str, left: float
) -> None:
    """A call beyond the limit is not made: the run is paused, and shows the limit, its usage and the rest."""
    shown = await service.until(await limited(service, **limits), "paused", "done", "failed")
    detail = shown["error"]["detail"]

    assert (shown["status"], shown["reason"], shown["error"]["code"]) == ("paused",) + ("budget_exhausted",) * 2
    assert (detail["limit"], detail["budget"]) == (limit, {"kind": "run", "run_id": shown["run_id"]})
    assert shown["budget"]["used"]["calls"] == 1
    assert shown["budget"]["used"]["cost_usd"] == 0.25
    assert shown["budget"]["left"] == {limit: left}
    assert [step["status"] for step in shown["steps"] if step.get("agent_id")] == ["done"]


PROVIDER_LOOP = """
version: "1.1.1"
providers: {asked: {command: [bash, -c, "echo call >> calls"], input_mode: stdin}}
steps:
  - name: each
    for_each: {items: [1, 2, 3], steps: [{name: ask, provider: asked}, {name: look, command: ["true"]}]}
"""


async def test_calls_of_providers_count(project: Project, service: served.Served) -> None:
    """A workflow's call of a provider counts in the limit of calls; a command does not."""
    project.write(".control-room/recipes/orchestrate/loop.yaml", PROVIDER_LOOP)
    asked = project.write("calls", "")
    started = await service.http.post("/api/runs", json={"recipe_id": "loop", "limits": {"calls": 2}})
    run_id = started.json()["run_id"]
    shown = await service.until(run_id, "paused", "done", "failed")
    before = asked.read_text()
    await service.http.patch(f"/api/runs/{run_id}/limits", json={"calls": 3})
    ended = await service.until(run_id, "done", "failed")
    examined = (await service.http.post("/api/preflight", json={"recipe_id": "loop", "limits": {"cost_usd": 1}})).json()

    assert (shown["status"], shown["reason"], before) == ("paused", "budget_exhausted", "call\n" * 2)
    assert shown["budget"]["used"]["calls"] == 2
    assert (ended["status"], asked.read_text(), ended["budget"]["used"]["calls"]) == ("done", "call\n" * 3, 3)
    assert (examined["calls_at_most"], examined["cost_at_most_usd"]) == (3, None)
    assert "only a limit of calls bounds them" in examined["unbounded"][0]


async def test_a_raised_limit_sends_the_run_on(paid: Project, service: served.Served) -> None:
    """A raised limit continues the run at the call that exceeded it; its journal names the author."""
    run_id = await limited(service, calls=1)
    await service.until(run_id, "paused")
    author = {"X-Control-Room-Author": "Ada"}
    answer = await service.http.patch(f"/api/runs/{run_id}/limits", json={"calls": 5}, headers=author)
    shown = await service.until(run_id, "done", "failed")
    control = (paid.data / "runs" / run_id / "control.jsonl").read_text().splitlines()
    line = next(line for text in control if (line := json.loads(text))["kind"] == "limited")

    assert answer.status_code == 200, answer.text
    assert shown["status"] == "done"
    assert shown["budget"]["used"] == {
        "calls": 2, "calls_without_price": 0, "cost_estimated_usd": None, "cost_usd": 0.5, "tokens": 240,
    }  # fmt: skip
    assert shown["budget"]["left"] == {"calls": 3}
    assert (line["limits"], line["author"]["name"]) == ({"calls": 5}, "Ada")


async def test_a_limit_that_is_raised_too_little_keeps_the_run_paused(paid: Project, service: served.Served) -> None:
    """A run continues only when its next call fits; without a limit, all calls are made."""
    run_id = await limited(service, cost_usd=0.2)
    parked = await service.until(run_id, "paused")
    unpaused = await service.http.post(f"/api/runs/{run_id}/unpause")
    why = (await service.http.get(f"/api/runs/{run_id}/why")).json()
    little = await service.http.patch(f"/api/runs/{run_id}/limits", json={"cost_usd": 0.25})
    later = (await service.http.get(f"/api/runs/{run_id}/why")).json()
    lifted = await service.http.patch(f"/api/runs/{run_id}/limits", json={"cost_usd": None})

    assert later["chain"][0]["since"] == why["chain"][0]["since"]
    assert "the limit of run" in parked["error"]["message"]
    assert "is $0.20, it is overdrawn by $0.05" in parked["error"]["message"]
    assert (unpaused.status_code, unpaused.json()["code"]) == (409, "budget_exhausted")
    assert "control-room runs limits" in unpaused.json()["detail"]
    assert why["chain"][0]["act"] == f"control-room runs limits {run_id} --max-cost N"
    assert little.json()["status"] == "paused"
    assert lifted.status_code == 200
    assert (await service.until(run_id, "done", "failed"))["status"] == "done"


async def test_reservations_are_in_the_started_line(paid: Project, service: served.Served) -> None:
    """The `started` line of a limited call contains its reservation; that of a call without limits does not."""
    bound = await service.until(await limited(service, calls=5), "done", "failed")
    free = await service.run("draft", args=ARGS)

    def started(run_id: str) -> list[Any]:
        lines = (paid.data / "runs" / run_id / "control.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [line.get("reserved") for line in found if line["kind"] == "started"]

    assert [each for each in started(bound["run_id"]) if each is not None] == [{}, {}]
    assert not any(each is not None for each in started(free["run_id"]))
    assert "budget" not in free


async def test_a_budget_of_the_project_parks_runs(paid: Project, service: served.Served) -> None:
    """Runs that a budget covers share it; a run that exceeds it continues when the budget is raised."""
    put = await service.http.put("/api/budgets/drafts", json={"recipe_id": "draft", "limits": {"cost_usd": 0.5}})
    first = await service.run("draft", args=ARGS)
    second = await service.until(await service.start("draft", args=ARGS), "paused", "done", "failed")
    (listed,) = (await service.http.get("/api/budgets")).json()
    raised = await service.http.put("/api/budgets/drafts", json={"recipe_id": "draft", "limits": {"cost_usd": 5}})
    after = await service.until(second["run_id"], "done", "failed")

    assert (put.status_code, first["status"], second["status"]) == (200, "done", "paused")
    assert second["error"]["detail"]["budget"] == {"kind": "budget", "name": "drafts"}
    assert (listed["used"]["cost_usd"], listed["left"]) == (0.5, {"cost_usd": 0.0})
    assert raised.json()["left"] == {"cost_usd": 4.5}
    assert after["status"] == "done"
    assert [line["action"] for line in (await service.http.get("/api/audit?action=budget")).json()] == [
        "budget.changed",
        "budget.created",
    ]


async def test_a_new_budget_counts_earlier_usage_once(paid: Project) -> None:
    """A new budget after a restart counts earlier usage from the journals once."""
    async with served.in_process(paid) as service:
        await service.run("draft", args=ARGS)
        stuck = await limited(service, calls=1)
        await service.until(stuck, "paused")
    async with served.in_process(paid) as service:
        made = await service.http.put("/api/budgets/all", json={"limits": {"cost_usd": 10}})
        shown = await service.show(stuck)

    assert (made.json()["used"]["cost_usd"], made.json()["used"]["calls"]) == (0.75, 3)
    assert shown["budget"]["used"]["calls"] == 1


async def test_a_sum_of_prices_is_a_price(project: Project, service: served.Served) -> None:
    """Sums of prices are exact: 0.1 and 0.2 are 0.3, and not 0.30000000000000004."""
    for step, cost in (("draft", 0.1), ("polish", 0.2)):
        project.say(step, text="The lantern was dark.", usage={"input_tokens": 1, "output_tokens": 1, "cost_usd": cost})
    run = await service.run(**DRAFT)
    budget = await service.http.put("/api/budgets/all", json={"limits": {"cost_usd": 1}})
    statistics = (await service.http.get("/api/usage?by=recipe")).json()

    assert run["usage"]["cost_usd"] == 0.3
    assert (budget.json()["used"]["cost_usd"], budget.json()["left"]["cost_usd"]) == (0.3, 0.7)
    assert statistics["total"]["cost_usd"] == statistics["rows"][0]["cost_usd"] == 0.3


async def test_a_budget_of_a_label_counts_its_runs_alone(paid: Project, service: served.Served) -> None:
    """A budget of a label covers only runs with this label and value."""
    await service.http.put("/api/budgets/book", json={"limits": {"calls": 3}, "label": "book:harbour"})
    runs = [{"book": "harbour"}, {"book": "bridge"}, {}, {"book": "harbour", "more": "x"}]
    ended = [await service.until(await service.start(**DRAFT, labels=each), "paused", "done") for each in runs]
    (shown,) = (await service.http.get("/api/budgets")).json()

    assert [each["status"] for each in ended] == ["done", "done", "done", "paused"]
    assert ended[-1]["error"]["detail"]["budget"] == {"kind": "budget", "name": "book"}
    assert (shown["used"]["calls"], shown["left"]) == (3, {"calls": 0})


async def test_runs_are_sent_on_although_they_cannot_be_listed_at_first(
    paid: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A starting service that fails to list the runs waiting for a budget tries again and resumes them."""
    budget = {"limits": {"calls": 1}}
    async with served.in_process(paid) as service:
        await service.http.put("/api/budgets/all", json=budget)
        run_id = await service.start(**DRAFT)
        await service.until(run_id, "paused")
    file = paid.data / "budgets.json"
    file.write_text(file.read_text().replace('"calls":1', '"calls":9').replace('"calls": 1', '"calls": 9'))
    list_runs, refused = folder_store.FolderStore.list_runs, list[str]()

    async def list_later(store: folder_store.FolderStore, query: stores.RunQuery) -> Any:
        if query.status == "paused" and not refused:
            refused.append("paused")
            raise errors.Unreadable("runs cannot be read now")
        return await list_runs(store, query)

    monkeypatch.setattr(folder_store.FolderStore, "list_runs", list_later)
    monkeypatch.setattr(budgets, "LOOK_SECONDS", 0.01)
    async with served.in_process(paid) as service:
        await service.until(run_id, "done")

    assert refused == ["paused"]


async def test_a_removed_budget_lets_waiting_runs_continue(paid: Project, service: served.Served) -> None:
    """A run that waits for a budget continues when the budget is removed."""
    await service.http.put("/api/budgets/none", json={"limits": {"calls": 0}})
    run_id = await service.start("draft", args=ARGS)
    await service.until(run_id, "paused")
    removed = await service.http.delete("/api/budgets/none")
    again = await service.http.delete("/api/budgets/none")

    assert (removed.status_code, again.status_code, again.json()["code"]) == (204, 404, "budget_not_found")
    assert (await service.until(run_id, "done", "failed"))["status"] == "done"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"limits": {}}, "$.limits"),
        ({"limits": {"cost_usd": -1}}, "$.limits.cost_usd"),
        ({"limits": {"wall_seconds": 5}}, "$.limits.wall_seconds"),
        ({"limits": {"calls": 1}, "per": "week"}, "$.per"),
        ({"limits": {"calls": 1}, "label": "book"}, "$.label"),
        ({"limits": {"calls": 1}, "time_zone": "Mars/Olympus"}, "$.time_zone"),
        ({"limits": {"calls": 1}, "time_zone": "../../etc/passwd"}, "$.time_zone"),
        ({"limits": {"calls": 1}, "time_zone": "Europe/Berlin"}, "$.time_zone"),
        ({"limits": {"calls": 1}, "time_zone": "Europe/Berlin", "per": None}, "$.time_zone"),
    ],
)
async def test_a_wrong_budget_is_refused_at_its_place(service: served.Served, body: dict[str, Any], place: str) -> None:
    """A budget without content or with wrong content is refused with the name of the field."""
    answer = await service.http.put("/api/budgets/wrong", json=body)

    assert answer.status_code == 400
    assert [flaw["path"] for flaw in answer.json()["flaws"]] == [place]
    assert (await service.http.get("/api/budgets")).json() == []


async def test_a_time_zone_without_effect_in_the_file_stays(project: Project) -> None:
    """A budget of an earlier version, or of a hand edit, counts; a request with its default zone replaces it."""
    kept = {"name": "all", "limits": {"calls": 1}, "time_zone": "Europe/Berlin"}
    project.write(".control-room/budgets.json", json.dumps({"budgets": [kept]}))
    async with served.in_process(project) as service:
        before = (await service.http.get("/api/budgets")).json()
        answer = await service.http.put("/api/budgets/all", json={"limits": {"calls": 2}, "time_zone": "UTC"})

    assert [(one["limits"], one["time_zone"]) for one in before] == [({"calls": 1}, "Europe/Berlin")]
    assert (answer.status_code, answer.json()["limits"]) == (200, {"calls": 2})


@pytest.mark.parametrize("count", [2**53 + 1, 2**63, 10**30])
async def test_a_count_that_is_no_amount_is_reported_nowhere(
    project: Project, service: served.Served, count: int
) -> None:
    """The step, the run, its list and the sums agree that it was not reported, and no price is estimated from it."""
    project.say("*", text="Kael stepped off the ferry.", usage={"input_tokens": count, "output_tokens": 7})
    price = {"input_per_million_usd": 3, "output_per_million_usd": 15}
    project.write(".control-room/prices.json", json.dumps({"models": {"said/*": price}}))
    shown = await service.until(await service.start(**DRAFT), "done", "failed")
    steps = [step["usage"] for step in shown["steps"] if step.get("usage")]
    (row,) = (await service.http.get("/api/runs")).json()
    total = (await service.http.get("/api/usage")).json()["total"]

    assert {(usage["input_tokens"], usage["output_tokens"]) for usage in steps} == {(None, 7)}
    assert {usage["cost_estimated_usd"] for usage in steps} == {0.000105}
    assert [found["usage"]["input_tokens"] for found in (shown, row)] == [None, None]
    assert (total["input_tokens"], total["output_tokens"]) == (0, 7 * len(steps))


async def test_prices_are_estimated_apart(project: Project, service: served.Served) -> None:
    """A call without a reported price is estimated by the price file, whose version is recorded."""
    project.say("*", text="Kael stepped off the ferry.", usage={"input_tokens": 1000, "output_tokens": 100})
    price = {"input_per_million_usd": 3, "output_per_million_usd": 15}
    project.write(".control-room/prices.json", json.dumps({"version": "2026-11", "models": {"said/*": price}}))
    shown = await service.until(await limited(service, cost_usd=0.004), "paused", "done", "failed")
    (step,) = [step for step in shown["steps"] if step.get("usage")]
    usage = (await service.http.get("/api/usage")).json()["total"]

    assert step["usage"] == {
        "input_tokens": 1000, "output_tokens": 100, "cost_usd": None, "cost_estimated_usd": 0.0045,
        "prices_version": "2026-11",
    }  # fmt: skip
    assert (shown["status"], shown["budget"]["left"]) == ("paused", {"cost_usd": -0.0005})
    assert (shown["budget"]["used"]["cost_usd"], shown["budget"]["used"]["cost_estimated_usd"]) == (None, 0.0045)
    assert (usage["cost_usd"], usage["cost_estimated_usd"]) == (None, 0.0045)


async def test_a_plan_parks_at_its_budget_and_continues_after_a_raise(paid: Project, service: served.Served) -> None:
    """A plan that exceeds its budget parks with the reason and the rest; after a raise, it ends and pays once."""
    tasks = [
        {"description": "sketch scene", "recipe_id": "draft", "args": ARGS, "deps": []},
        {"description": "jot down", "recipe_id": "draft", "args": ARGS, "deps": [1]},
    ]
    made = await service.http.post("/api/sessions", json={"tasks": tasks})
    assert made.status_code == 201, made.text
    session_id = made.json()["session_id"]
    budget = {"session_id": session_id, "limits": {"calls": 3}}
    put = await service.http.put("/api/budgets/story", json=budget)
    assert put.status_code == 200, put.text
    for order in ("approve", "start"):
        answer = await service.http.post(f"/api/sessions/{session_id}/{order}", json={})
        assert answer.status_code == 200, answer.text

    async def plan_until(holds: Any) -> Any:
        async with asyncio.timeout(served.WAIT_SECONDS):
            while True:
                shown = (await service.http.get(f"/api/sessions/{session_id}")).json()
                if holds(shown):
                    return shown
                await asyncio.sleep(0.02)

    plan = await plan_until(lambda shown: shown["tasks"][1]["run_id"] is not None)
    parked = await service.until(plan["tasks"][1]["run_id"], "paused", "done", "failed")
    (listed,) = (await service.http.get("/api/budgets")).json()
    waiting = (await service.http.get(f"/api/sessions/{session_id}")).json()
    raised = await service.http.put("/api/budgets/story", json=budget | {"limits": {"calls": 10}})
    ended = await plan_until(lambda shown: shown["status"] in ("done", "failed"))
    (spent,) = (await service.http.get("/api/budgets")).json()

    assert (parked["status"], parked["reason"]) == ("paused", "budget_exhausted")
    assert parked["error"]["detail"]["budget"] == {"kind": "budget", "name": "story"}
    assert [step["status"] for step in parked["steps"] if step.get("agent_id")] == ["done"]
    assert (listed["used"]["calls"], listed["left"]) == (3, {"calls": 0})
    assert ([task["status"] for task in waiting["tasks"]], waiting["status"]) == (["done", "running"], "running")
    assert raised.json()["left"] == {"calls": 7}
    assert ([task["status"] for task in ended["tasks"]], ended["status"]) == (["done", "done"], "done")
    assert spent["used"]["calls"] == 4


PARALLEL = """name: parallel
description: parallel
version: 1.0.0
schema: "1.7"
steps:
  - {id: list, type: bash, command: "echo '[1,2,3,4,5,6]'", output: items, parse_json: true}
  - {id: each, foreach: "{{items}}", as: item, parallel: true, agent: writer-1, prompt: "Say {{item}}"}
"""


@pytest.mark.parametrize(("most_per_call", "calls"), [(None, 3), (0.3, 2)])
async def test_parallel_branches_pass_a_limit_by_one_call_at_most(
    project: Project, most_per_call: float | None, calls: int
) -> None:
    """Calls of unknown price are made one at a time; calls with a known bound are made as long as they fit."""
    project.say("*", text="Fine words.", usage={"input_tokens": 10, "output_tokens": 2, "cost_usd": 0.25})
    project.write(".control-room/recipes/amplifier/parallel.yaml", PARALLEL)
    agents = json.loads((project.data / "agents.json").read_text())
    agents["backends"]["said"] |= {} if most_per_call is None else {"max_cost_per_call": most_per_call}
    project.write(".control-room/agents.json", json.dumps(agents))
    async with served.in_process(project) as service:
        run_id = await service.start("parallel", limits={"cost_usd": 0.6})
        parked = await service.until(run_id, "paused")
        raised = await service.http.patch(f"/api/runs/{run_id}/limits", json={"cost_usd": 5})
        done = await service.until(run_id, "done")

    assert parked["reason"] == "budget_exhausted"
    assert (parked["budget"]["used"]["calls"], parked["budget"]["used"]["cost_usd"]) == (calls, calls * 0.25)
    assert raised.status_code == 200
    assert done["budget"]["used"]["calls"] == 6


async def test_why_names_a_call_that_waits_for_the_budget(project: Project) -> None:
    """During a call of unknown price, the next call of the budget waits, and `why` names the reason."""
    project.say("*", hang=True)
    async with served.in_process(project) as service:
        await service.http.put("/api/budgets/all", json={"limits": {"cost_usd": 5}})
        first = await service.start("unguarded")
        await service.until(first, step="draft")
        second = await service.start("unguarded")
        why: dict[str, Any] = {"chain": [{"kind": None}]}
        async with asyncio.timeout(served.WAIT_SECONDS):
            while why["chain"][0]["kind"] != "budget":
                await served.moment()
                why = (await service.http.get(f"/api/runs/{second}/why")).json()
        project.say("*", text="Fine words.")
        await service.http.post(f"/api/runs/{first}/cancel")
        await service.until(second, "done")

    assert f"waits until a call of run {first} has ended: within the limit of budget all" in why["sentence"]


def test_a_changed_budget_keeps_its_other_parts(project: Project, cli: Any) -> None:
    """The command that an error names changes only its limit; each part of a budget can be removed by name."""

    def put(*words: str) -> dict[str, Any]:
        code, printed, told = cli("budgets", "set", "daily", *words, "--json", "--project", str(project.root))
        assert code == 0, told
        found = json.loads(printed)
        return {name: found[name] for name in ("recipe_id", "label", "per", "time_zone", "limits")}

    whole = {"recipe_id": "draft", "label": "book:one", "per": "day", "time_zone": "Europe/Berlin"}
    scope = ("--recipe", "draft", "--label", "book=one", "--per-day", "--time-zone", "Europe/Berlin")

    assert put(*scope, "--max-cost", "1") == {**whole, "limits": {"cost_usd": 1}}
    assert put("--max-cost", "5") == {**whole, "limits": {"cost_usd": 5}}
    assert put("--max-calls", "9", "--lift", "cost_usd") == {**whole, "limits": {"calls": 9}}
    assert put("--max-cost", "5") == {**whole, "limits": {"cost_usd": 5, "calls": 9}}
    assert put("--lift", "max-cost") == {**whole, "limits": {"calls": 9}}
    assert put("--label", "", "--recipe", "", "--not-per-day") == {
        "recipe_id": None, "label": None, "per": None, "time_zone": "UTC", "limits": {"calls": 9},
    }  # fmt: skip


def test_amounts_are_printed_whole(project: Project, cli: Any) -> None:
    """Large numbers of tokens and small prices are printed as numbers that a person can read."""
    words = ("--max-tokens", "5234571", "--max-cost", "234567.25", "--max-calls", "20")
    code, printed, told = cli("budgets", "set", "daily", *words, "--project", str(project.root))

    assert code == 0, told
    assert all(amount in printed for amount in ("tokens 5,234,571 ", "cost_usd 234,567.25 ", "calls 20 "))


async def test_a_limit_that_is_raised_while_the_run_is_about_to_pause_sends_it_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose limit was raised before its pause is checked again, during the service and at its next start."""
    project, given = Project(tmp_path), {"wall_seconds": 30}
    look = {"id": "look", "type": "bash", "command": "true"}
    stages = [{"name": "check", "steps": [look], "approval": {"required": True, "prompt": "Publish it?"}}]
    gated = {"name": "gated", "description": "Wait", "version": "1.0.0", "schema": "1.7", "stages": stages}
    project.write(".control-room/recipes/amplifier/gated.yaml", json.dumps(gated))
    async with scheduled.in_process(project) as service:
        assert service.app is not None
        kept = service.app.state.services.budgets
        run_ids = [await _at_its_time(service, given) for _ in range(2)]
        with monkeypatch.context() as patched:
            patched.setattr(kept, "send_on", _missing)
            raised = [await _raised(service, run_id) for run_id in run_ids[:1]]
        before = (await service.show(run_ids[0]))["status"]
        await service.advance(budgets.LOOK_SECONDS)
        await service.until(run_ids[0], "waiting")
        monkeypatch.setattr(kept, "send_on", _missing)
        raised += [await _raised(service, run_id) for run_id in run_ids[1:]]
    async with scheduled.in_process(project, service.time) as service:
        await service.until(run_ids[1], "waiting")

    assert (raised, before) == ([200, 200], "paused")


async def _at_its_time(service: scheduled.Scheduled, given: dict[str, int]) -> str:
    run_id = await service.start("gated", limits=given)
    await service.until(run_id, "waiting")
    await service.advance(given["wall_seconds"])
    await service.until(run_id, "paused")
    return run_id


async def _raised(service: scheduled.Scheduled, run_id: str) -> int:
    answer = await service.http.patch(f"/api/runs/{run_id}/limits", json={"wall_seconds": 9_000})
    return answer.status_code


async def _missing() -> None:
    """Ignore all paused runs."""
