"""Tests of workflows that are cut off: wherever they are cut, they end as if undisturbed."""

from __future__ import annotations

import json

import pytest

from app.domain.states import RunState
from tests.unit.dialects.orchestrate import driver_harness, shows
from tests.unit.dialects.orchestrate.driver_harness import Play
from tests.unit.dialects.orchestrate.workflow_harness import step


@pytest.mark.parametrize("make", [shows.winding, shows.queue, shows.failing])
async def test_cut_off_before_any_step(make):
    """A process that dies during any attempt of any step leaves the same journal and the same state in the end."""
    whole = make()
    ended = await whole.run()
    tries = [(json.loads(line)["key"], json.loads(line)["attempt"]) for line in whole.disk.steps]

    assert len(tries) > 2
    for dying in tries:
        play = make()
        play.stub.dying = dying
        with pytest.raises(driver_harness.Died):
            await play.run()
            raise driver_harness.Died
        play.stub.dying = None
        state = await play.run()

        assert state is ended
        assert driver_harness.lines(play) == driver_harness.lines(whole)
        assert driver_harness.comparable(dict(play.state)) == driver_harness.comparable(dict(whole.state))
        assert play.stub.files == whole.stub.files


async def test_the_way_it_goes():
    """Nested loops, jumps and retries have the expected keys."""
    play = shows.winding()

    assert await play.run() is RunState.DONE
    keys = play.disk.recorded()
    assert keys[:4] == ["A", "A", "A", "Out[0].In[0].S"]
    assert keys[keys.index("Out[0].In[1].S") :][:3] == ["Out[0].In[1].S", "Out[0].In[1].Fix", "Out[0].In[1].S#2"]
    assert keys.count("Out[1].In[0].U") == 3
    assert "Out[2].In[0].S" not in keys
    assert keys[keys.index("B") :][:3] == ["B", "A#2", "Out#2[0].In[0].S"]
    assert keys[-3:] == ["Out#2[2].V", "B#2", "C"]
    assert [turn["V"]["exit_code"] for turn in play.state["steps"]["Out"]] == [0, 0, 1]


async def test_resuming_a_failure():
    """A resumed run repeats the failed step, but no step before it."""
    play = shows.failing()
    assert await play.run() is RunState.FAILED
    resume(play)

    assert await play.run() is RunState.DONE
    assert play.stub.order() == ["Each[1].S", "Each[1].T"]
    assert play.state["for_each"]["Each"]["completed_indices"] == [0, 1]


async def test_a_resume_does_not_skip_the_step_that_failed():
    """The condition of a failed step was decided: a file that the step left behind does not let a resume skip it."""
    play = Play(step("A", when={"not_exists": "out"}, depends_on={"optional": ["in"]}), step("B"))
    play.stub.results = {"A": [1]}

    assert await play.run() is RunState.FAILED
    play.stub.files["out"] = "half of it"
    resume(play)

    assert await play.run() is RunState.DONE
    assert play.stub.order() == ["A.files", "A", "B"]
    assert play.state["steps"]["A"]["status"] == "completed"


async def test_a_resume_looks_again_for_a_condition_that_could_not_be_decided():
    """A condition whose files could not be listed is the failure itself, so a resume lists them again."""
    play = Play(step("A", when={"exists": "in"}))
    play.stub.files["in"] = ""
    play.stub.unreadable = True

    assert await play.run() is RunState.FAILED
    play.stub.unreadable = False
    resume(play)

    assert await play.run() is RunState.DONE
    assert play.stub.order() == ["A.when", "A"]


def resume(play: Play) -> None:
    """Resume a run that has failed."""
    ended = play.ended
    dead = [[at, at] for at in ended["causes"]]
    play.disk.control.append(json.dumps({"kind": "resumed", "at": ended["at"], "dead": dead}).encode())
    play.stub.asked.clear()
