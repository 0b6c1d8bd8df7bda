"""Tests of random workflows: they reach an end that the language defines, also after being cut off."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app import errors
from app.dialects.orchestrate import driver
from app.domain.states import RunState
from tests.examples import examples
from tests.unit.dialects.orchestrate import driver_harness, random_flows

SEEDS = range(examples(80))
CUTS = 3
"""The number of attempts of each workflow at which it dies."""


@pytest.fixture(autouse=True)
def few_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit of visits that detects an endless workflow."""
    monkeypatch.setattr(driver, "MOST_VISITS", 12)


def make(seed: int) -> driver_harness.Play | None:
    """Return a workflow in its harness, or None if it is not valid."""
    chance = random_flows.Chance(seed)
    try:
        play = driver_harness.Play(document=json.dumps(chance.workflow()), options=chance.options())
    except errors.RecipeInvalid:
        return None
    play.stub.files |= {"f1": "one", "f2": "two"}
    play.stub.programs["chance"] = chance.program
    return play


def performed(play: driver_harness.Play) -> list[tuple[str, int]]:
    """Return key and attempt of some attempts that the stub performed, spread over the run."""
    asked = {key for key, _ in play.stub.asked}
    lines: list[Any] = [json.loads(line) for line in play.disk.steps]
    tries = [(line["key"], line["attempt"]) for line in lines if line["key"] in asked]
    return tries[:: max(len(tries) // CUTS, 1)][:CUTS]


async def test_every_valid_workflow_ends() -> None:
    """Every valid workflow ends as done, or as failed by a step or an endless flow; after a cut it ends the same."""
    judged = 0
    for seed in SEEDS:
        whole = make(seed)
        if whole is None:
            continue
        judged += 1
        ended = await whole.run()
        code = (whole.ended.get("error") or {}).get("code")

        assert ended in (RunState.DONE, RunState.FAILED), seed
        assert code in (None, driver.STEP_FAILED, "runs_in_circles"), seed
        for dying in performed(whole):
            play = make(seed)
            assert play is not None
            play.stub.dying = dying
            with pytest.raises(driver_harness.Died):
                await play.run()
            play.stub.dying = None

            assert await play.run() is ended, (seed, dying)
            assert driver_harness.lines(play) == driver_harness.lines(whole), (seed, dying)
            assert driver_harness.comparable(dict(play.state)) == driver_harness.comparable(dict(whole.state)), (
                seed,
                dying,
            )
            assert play.stub.files == whole.stub.files, (seed, dying)
    assert judged > len(SEEDS) // 2
