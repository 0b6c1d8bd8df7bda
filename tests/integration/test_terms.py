"""Prices and policies: the costs of models, and the limits and approvals of runs of a recipe."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.cli import root
from app.dialects import registry as dialects
from app.domain import policies, prices
from app.domain.approvals import Approvals
from app.domain.limits import RunLimits
from tests.integration import served
from tests.integration.project import Project
from tests.unit.dialects.agent_recipes import recipe_harness as machines
from tests.unit.dialects.amplifier import recipe_harness as flows

ARGS = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
PRICE = {"input_per_million_usd": 3, "output_per_million_usd": 15}
BOUND = PRICE | {"context_tokens": 10_000, "max_output_tokens": 2_000}
TOKEN = "t" * 40
ADMIN = {"Authorization": f"Bearer {TOKEN}"}


def _machine(project: Project) -> str:
    project.write(".control-room/recipes/agent_recipes/small.json", json.dumps(machines.recipe()))
    return "small"


def _flow(project: Project) -> str:
    document = flows.recipe(flows.step("first", agent="writer", prompt="Write."))
    project.write(".control-room/recipes/amplifier/small.yaml", json.dumps(document))
    return "small"


def _workflow(project: Project) -> str:
    document = {"version": "1.1", "name": "small", "steps": [{"name": "One", "command": ["true"]}]}
    project.write(".control-room/recipes/orchestrate/small.yaml", json.dumps(document))
    return "small"


LANGUAGES: Mapping[str, Callable[[Project], str]] = {
    "control_room": lambda _: "quick",
    "agent_recipes": _machine,
    "amplifier": _flow,
    "orchestrate": _workflow,
}


async def preflight(service: served.Served, **body: Any) -> dict[str, Any]:
    """Return the preflight report of a request."""
    answer = await service.http.post("/api/preflight", json=body, headers=ADMIN)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_prices_bound_what_a_run_costs_before_it_starts(project: Project, service: served.Served) -> None:
    """The worst case is the most calls at the highest price of one, by the model's context and the reply limit."""
    before = await preflight(service, recipe_id="draft", args=ARGS)
    put = await service.http.put("/api/prices", json={"version": "1", "models": {"said/*": BOUND}})
    priced = await preflight(service, recipe_id="draft", args=ARGS)
    fewer = await preflight(service, recipe_id="draft", args=ARGS, limits={"calls": 1})
    run = await service.run("draft", args=ARGS)
    preview = (await service.http.post(f"/api/runs/{run['run_id']}/preview", json={"order": "fork", "from": 1})).json()
    shown = (await service.http.get("/api/prices")).json()

    assert (before["cost_at_most_usd"], before["tokens_at_most"]) == (None, None)
    assert any("context_tokens" in reason for reason in before["unbounded"])
    assert put.status_code == 200, put.text
    # 8,000 tokens read and 2,000 written.
    assert (priced["calls_at_most"], priced["cost_at_most_usd"], priced["tokens_at_most"]) == (2, 0.108, 20_000)
    assert priced["unbounded"] == []
    assert fewer["cost_at_most_usd"] == 0.054
    assert preview["cost_usd_at_most"] == preview["calls_at_most"] * 0.054 > 0
    assert shown == put.json() == {"version": "1", "models": {"said/*": BOUND}}


async def test_a_shorter_reply_of_the_agent_lowers_the_worst_case(project: Project) -> None:
    """The longest reply that agents and steps allow sets the worst case; without a context, the cost is unknown."""
    path = project.data / "agents.json"
    document = json.loads(path.read_text())
    for agent in document["agents"]:
        agent["max_output_tokens"] = 1_000
    path.write_text(json.dumps(document))
    async with served.in_process(project) as service:
        await service.http.put("/api/prices", json={"models": {"said/*": BOUND}})
        short = await preflight(service, recipe_id="draft", args=ARGS)
        await service.http.put("/api/prices", json={"models": {"said/*": PRICE}})
        unknown = await preflight(service, recipe_id="draft", args=ARGS)

    assert short["cost_at_most_usd"] == 0.084
    assert unknown["cost_at_most_usd"] is None
    assert unknown["unbounded"][0].startswith("cost: the agent ")


@pytest.mark.parametrize(
    ("models", "path"),
    [
        ({"m": 3}, "$.models['m']"),
        ({"m": PRICE | {"input_per_million_usd": -1}}, "$.models['m'].input_per_million_usd"),
        ({"m": PRICE | {"output_per_million_usd": "free"}}, "$.models['m'].output_per_million_usd"),
        ({"m": PRICE | {"context_tokens": 0}}, "$.models['m'].context_tokens"),
        ({"m": PRICE | {"max_output_tokens": 1.5}}, "$.models['m'].max_output_tokens"),
    ],
)
async def test_wrong_prices_are_refused_at_their_place(service: served.Served, models: Any, path: str) -> None:
    """Wrong prices are not written, and the refusal names the place of the fault."""
    answer = await service.http.put("/api/prices", json={"models": models})

    assert answer.status_code == 400
    assert [flaw["path"] for flaw in answer.json()["flaws"]] == [path]
    assert (await service.http.get("/api/prices")).json()["models"] == {}


@pytest.mark.parametrize(
    ("listed", "path"),
    [
        ([{"recipe_id": "draft"}], "$.policies[0]"),
        ([{"recipe_id": "draft", "limits": {"calls": None}}], "$.policies[0]"),
        ([{"recipe_id": "../x", "limits": {"calls": 1}}], "$.policies[0].recipe_id"),
        ([{"recipe_id": "*", "limits": {"calls": -1}}], "$.policies[0].limits.calls"),
        ([{"recipe_id": "*", "limits": {"cals": 1}}], "$.policies[0].limits.cals"),
        ([{"recipe_id": "*", "approvals": {"count": 0}}], "$.policies[0].approvals"),
        ([{"recipe_id": "*", "approvals": {"count": True}}], "$.policies[0].approvals"),
        ([{"recipe_id": "*", "limits": {"calls": 1}, "aprovals": {}}], "$.policies[0].aprovals"),
        ([{"recipe_id": "*", "limits": {"calls": 1}}] * 2, "$.policies[1].recipe_id"),
        (["*"], "$.policies[0]"),
    ],
)
async def test_wrong_policies_are_refused_at_their_place(service: served.Served, listed: Any, path: str) -> None:
    """Wrong policies are not written, and the refusal names the place of the fault."""
    answer = await service.http.put("/api/policies", json={"policies": listed})

    assert answer.status_code == 400
    assert [flaw["path"] for flaw in answer.json()["flaws"]] == [path]
    assert (await service.http.get("/api/policies")).json() == {"policies": []}


def test_the_nearest_policy_gives_limits_and_the_strictest_approvals() -> None:
    """A start's limit overrides its recipe's, which overrides that of all recipes; approvals only become stricter."""
    document = {
        "policies": [
            {"recipe_id": "*", "limits": {"calls": 9, "cost_usd": 9}, "approvals": {"count": 2}},
            {"recipe_id": "ship", "limits": {"calls": 5}, "approvals": {"not_starter": True}},
        ]
    }
    found = policies.Policies.of(document)

    assert found.limits_of("ship", RunLimits(tokens=1)) == RunLimits(tokens=1, calls=5, cost_usd=9)
    assert found.limits_of("other", RunLimits(calls=99)) == RunLimits(calls=99, cost_usd=9)
    assert found.approvals_of("ship", None) == Approvals(count=2, not_starter=True)
    assert found.approvals_of("other", Approvals(count=3)) == Approvals(count=3)
    assert policies.NONE.approvals_of("ship", None) is None


async def test_runs_get_the_limits_of_their_recipe(project: Project, service: served.Served) -> None:
    """A run of the recipe stops at its policy's limit, others complete, and the audit log contains the change."""
    project.say("*", text="Kael stepped off the last ferry and saw that the lantern was dark.")
    body = {"policies": [{"recipe_id": "draft", "limits": {"calls": 1}}]}
    put = await service.http.put("/api/policies", json=body, headers={"X-Control-Room-Author": "Ada"})
    paused = await service.until(await service.start("draft", args=ARGS), "paused", "done", "failed")
    wanted = {"recipe_id": "draft", "args": ARGS, "limits": {"calls": 9}}
    own = (await service.http.post("/api/runs", json=wanted)).json()["run_id"]
    quick = await service.run("quick")
    done = await service.until(own, "paused", "done", "failed")
    (entry,) = (await service.http.get("/api/audit?action=policies")).json()

    assert put.status_code == 200, put.text
    assert (paused["status"], paused["budget"]["limits"]) == ("paused", {"calls": 1})
    assert (done["status"], quick["status"]) == ("done", "done")
    assert (entry["action"], entry["target"], entry["author"]["name"]) == ("policies.changed", "policies.json", "Ada")


@pytest.mark.parametrize("language", dialects.DIALECTS)
async def test_recipes_of_every_language_need_what_a_policy_asks_for(project: Project, language: str) -> None:
    """Without enough keys for the approvals, preflight and start are refused; with two keys the start is accepted."""
    recipe_id = LANGUAGES[language](project)
    body = {"recipe_id": recipe_id, "args": {"backend": "said"} if language == "agent_recipes" else {}}
    async with served.in_process(project, api_token=TOKEN) as service:
        listed = [{"recipe_id": recipe_id, "approvals": {"count": 2, "not_starter": True}}]
        await service.http.put("/api/policies", json={"policies": listed}, headers=ADMIN)
        told = await preflight(service, **body)
        refused = await service.http.post("/api/runs", json=body, headers=ADMIN)
        for name in ("ada", "bob"):
            new = {"name": name, "role": "approver"}
            key = (await service.http.post("/api/keys", json=new, headers=ADMIN)).json()["secret"]
        able = await preflight(service, **body)
        own = await service.http.post("/api/runs", json=body, headers={"Authorization": f"Bearer {key}"})
        started = await service.http.post("/api/runs", json=body, headers=ADMIN)

    assert (told["ok"], told["problems"][0]["code"], told["approvals"]["count"]) == (False, "approvals_need_keys", 2)
    assert (refused.status_code, refused.json()["code"]) == (409, "approvals_need_keys")
    assert (able["ok"], able["problems"]) == (True, [])
    # The second key would be the starter's.
    assert (own.status_code, own.json()["code"]) == (409, "approvals_need_keys")
    assert started.status_code == 201, started.text


async def test_no_fork_evades_a_policy(project: Project) -> None:
    """A fork of a run from before the policy gets the policy's limits, and is refused if no key could approve it."""
    async with served.in_process(project) as service:
        source = (await service.run("quick"))["run_id"]
        await service.http.put("/api/policies", json={"policies": [{"recipe_id": "*", "limits": {"calls": 7}}]})
        limited = (await service.http.post(f"/api/runs/{source}/fork", json={})).json()["run_id"]
        shown = await service.until(limited, "done", "failed")
        asking = {"policies": [{"recipe_id": "quick", "approvals": {"count": 1}}]}
        await service.http.put("/api/policies", json=asking)
        refused = await service.http.post(f"/api/runs/{source}/fork", json={})

    assert shown["budget"]["limits"] == {"calls": 7}
    assert (refused.status_code, refused.json()["code"]) == (409, "approvals_need_keys")


async def test_policies_edited_by_hand_count_and_a_broken_file_changes_nothing(project: Project) -> None:
    """A policy file is read at the start; a damaged one changes no policy, and prevents the next start."""
    project.write(".control-room/policies.json", json.dumps({"policies": [{"recipe_id": "*", "limits": {"calls": 1}}]}))
    async with served.in_process(project) as service:
        known = await preflight(service, recipe_id="draft", args=ARGS)
        project.write(".control-room/policies.json", "{")
        damaged = await service.http.get("/api/policies")
        still = await preflight(service, recipe_id="draft", args=ARGS)
    with pytest.raises(errors.ConfigurationError) as broken:
        async with served.in_process(project):
            pass

    assert known["limits"] == still["limits"] == {"calls": 1}
    assert (damaged.status_code, damaged.json()["code"]) == (409, "file_damaged")
    assert (broken.value.code, broken.value.detail) == ("file_damaged", {"file": "policies.json"})


@pytest.mark.parametrize("is_served", [False, True])
def test_commands_show_and_set_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_served: bool
) -> None:
    """The same commands work in a folder and with a service."""
    monkeypatch.delenv("CONTROL_ROOM_SERVER", raising=False)
    project = Project(tmp_path)
    votes = {"recipe_id": "ship", "limits": {"cost_usd": 5}, "approvals": {"count": 2, "not_starter": True}}
    documents: dict[str, Any] = {
        "priced": {"version": "7", "models": {"m": PRICE}},
        "ruled": {"policies": [votes]},
        "wrong": {"policies": [{"recipe_id": "ship"}]},
    }
    files = {name: str(project.write(f"{name}.json", json.dumps(each))) for name, each in documents.items()}
    given = (["prices", "set", files["priced"]], ["prices", "show"], ["policies", "set", files["ruled"]])
    commands = [*given, ["policies", "show"], ["policies", "set", files["wrong"]]]
    with contextlib.ExitStack() as closing:
        if is_served:
            place = ["--server", closing.enter_context(served.in_a_thread(project))]
        else:
            place = ["--project", str(project.root)]
        codes = [root.execute([*command, *place]) for command in commands]
    printed = capsys.readouterr()

    assert codes == [0, 0, 0, 0, 2], printed.err
    assert "version 7" in printed.out
    assert "2, not the starter" in printed.out
    assert "$.policies[0]" in printed.err


def test_a_price_without_a_version_gets_one_of_its_content() -> None:
    """Equal prices have the same version, however the file is written."""
    versions = {
        prices.Prices.of({"models": {"m": dict(order)}}).version for order in (PRICE.items(), [*PRICE.items()][::-1])
    }

    assert len(versions) == 1
    assert all(versions)
