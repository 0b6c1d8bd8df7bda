"""`limits` of a new run: accepted, stored and refused values, over HTTP and on the command line."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from app.cli import arguments
from app.domain import limits, runs
from app.services import requests
from tests.integration import served

LIMITS: dict[str, Any] = {"cost_usd": 0.5, "tokens": 20_000, "calls": 40, "wall_seconds": 7200, "active_seconds": 60.5}


async def test_limits_are_frozen(service: served.Served) -> None:
    """The limits of a request are stored in start.json and read from there."""
    answer = await service.http.post("/api/runs", json={"recipe_id": "quick", "limits": LIMITS})
    folder = service.project.data / "runs" / answer.json()["run_id"]
    kept = json.loads((folder / "start.json").read_text())

    assert kept["limits"] == LIMITS
    assert runs.RunStart.from_json(kept).limits == limits.RunLimits(**LIMITS)


async def test_a_run_without_limits_has_none(service: served.Served) -> None:
    """start.json of a run without limits does not contain `limits`."""
    answer = await service.http.post("/api/runs", json={"recipe_id": "quick"})
    folder = service.project.data / "runs" / answer.json()["run_id"]

    assert "limits" not in json.loads((folder / "start.json").read_text())


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"cost_usd": -1}, "$.limits.cost_usd"),
        ({"cost_usd": "5"}, "$.limits.cost_usd"),
        ({"tokens": 1.5}, "$.limits.tokens"),
        ({"calls": True}, "$.limits.calls"),
        ({"wall_seconds": 0}, "$.limits.wall_seconds"),
        ({"money": 5}, "$.limits.money"),
        ([], "$.limits"),
        (None, "$.limits"),
    ],
)
async def test_a_wrong_limit_is_refused_at_its_place(service: served.Served, given: Any, place: str) -> None:
    """A limit of a wrong type, range or name is refused with its field."""
    answer = await service.http.post("/api/runs", json={"recipe_id": "quick", "limits": given})

    assert answer.status_code == 400
    assert [flaw["path"] for flaw in answer.json()["flaws"]] == [place]


async def test_an_order_without_a_limit_is_refused(service: served.Served) -> None:
    """An order that names no limit is a 400 like other changes of nothing, and leaves no line and no event."""
    run_id = await service.start("quick")
    answer = await service.http.patch(f"/api/runs/{run_id}/limits", json={})
    await service.until(run_id, "done")

    assert (answer.status_code, answer.json()["detail"]) == (400, "$: changes nothing")
    assert "limited" not in (service.project.data / "runs" / run_id / "control.jsonl").read_text()


def test_limits_of_the_command_line_are_checked() -> None:
    """A request without a body is checked for the same ranges."""
    wrong = limits.RunLimits(cost_usd=float("nan"), calls=-1)

    assert [flaw.path for flaw in limits.flaws(wrong)] == ["$.limits.cost_usd", "$.limits.calls"]


def test_a_request_without_limits_keeps_its_hash() -> None:
    """Without limits, a request has the same hash as in earlier releases, and with limits another one."""
    plain = requests.StartRequest(recipe_id="quick")
    limited = requests.StartRequest(recipe_id="quick", limits=limits.RunLimits(calls=3))

    assert plain.sha256() == "e219d95923dc95c61bcd9e3378f50609adbbbbb9f60d7ec38c70f512326d7b56"
    assert limited.sha256() != plain.sha256()


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1d", 86_400)]
)
def test_a_duration_is_read(text: str, seconds: int) -> None:
    """Options accept durations with units, and plain seconds."""
    assert arguments.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "2x", "-3", "1.5h", "5m1h"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    """A text that is not a duration is refused with the valid forms."""
    with pytest.raises(click.BadParameter, match="write it as"):
        arguments.duration(text)
