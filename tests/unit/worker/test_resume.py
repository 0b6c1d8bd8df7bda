"""Resume: an ended run continues from its failed step or an earlier one."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from app import errors
from app.domain import states
from app.engine import ports
from tests.unit.worker import pools, toys

Bench = pools.Bench
RunState = states.RunState


async def failed(bench: Bench) -> str:
    """Run three steps of which the second fails."""
    bench.toolbox.fail("two")
    run_id = await bench.submit(*toys.tools("one", "two", "three"))
    await bench.ended(run_id)
    bench.toolbox.mend("two")
    return run_id


async def test_a_failed_run_continues_from_its_failed_step() -> None:
    """Finished steps are kept, and the step that made the run fail is performed again."""
    bench = await Bench().open()
    run_id = await failed(bench)

    assert await bench.resumed(run_id) is RunState.RUNNING
    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "two/1", "two/2", "three/1"]
    assert "run.resumed" in await bench.kinds(run_id)

    await bench.close()


async def test_an_earlier_step_may_be_named() -> None:
    """Every step from the named one on is performed again."""
    bench = await Bench().open()
    run_id = await failed(bench)
    await bench.resumed(run_id, from_key="one")

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "two/1", "one/2", "two/2", "three/1"]

    await bench.close()


async def test_an_unknown_step_is_refused() -> None:
    """A resume from an unknown step changes no file, and the answer names the known steps."""
    bench = await Bench().open()
    run_id = await failed(bench)
    with pytest.raises(errors.RequestInvalid) as refused:
        await bench.resumed(run_id, from_key="nine")

    assert refused.value.detail["steps"] == ["one", "two"]
    assert await bench.status(run_id) == "failed"

    await bench.close()


async def test_new_arguments_must_replay_the_living_lines() -> None:
    """New arguments are accepted only if the living lines replay with them; before that no step is executed."""
    bench = await Bench().open()
    run_id = await failed(bench)
    with pytest.raises(errors.RequestInvalid) as refused:
        await bench.resumed(run_id, overrides={"args": {"program": toys.tools("other", "three")}})

    assert refused.value.code == "recipe_differs"
    assert await bench.status(run_id) == "failed"

    await bench.resumed(run_id, overrides={"args": {"program": toys.tools("one", "four")}})

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "two/1", "four/1"]
    assert (await bench.store.read(run_id)).start.args == {"program": toys.tools("one", "four")}

    await bench.close()


class Secretive(toys.Toy):
    """The toy language with a secret text."""

    def secrets(self, document: Any) -> ports.Secrets:
        """Return the secret."""
        return ports.Secrets(texts=frozenset({"from-recipe"}))


async def test_the_refusal_of_a_resume_quotes_no_secret() -> None:
    """An answer about a differing operation shows it without the secrets of its recipe."""
    bench = Bench()
    bench.dialects["toy"] = cast(ports.Dialect, Secretive())
    bench.take_store(bench.store)
    await bench.open()
    run_id = await failed(bench)
    with pytest.raises(errors.RequestInvalid) as refused:
        await bench.resumed(run_id, overrides={"args": {"program": [{"gate": "one", "prompt": "from-recipe"}]}})

    assert refused.value.code == "recipe_differs"
    assert refused.value.detail["asked"]["body"]["prompt"] == "***"

    await bench.close()


async def test_the_row_is_unfinished_before_the_line_is_written() -> None:
    """After a crash before the line the run is still failed, after one behind it the run continues."""
    for point, state in (("pool.before_resume", RunState.FAILED), ("pool.after_resume", RunState.DONE)):
        bench = await Bench().open()
        run_id = await failed(bench)
        await bench.crash_at(point, 1, bench.resumed(run_id))
        await bench.restart()

        assert await bench.ended(run_id) == [state]

        await bench.close()


async def test_a_resumed_run_waits_its_turn() -> None:
    """A resumed run goes through the queue like every run, and is shown as pending."""
    bench = await Bench(limit=1).open()
    run_id = await failed(bench)
    keeper = await bench.keep_busy(1)

    assert await bench.resumed(run_id) is RunState.PENDING
    assert await bench.status(run_id) == "pending"
    assert (await bench.store.read_snapshots(run_id))["run.json"]["status"] == "pending"
    with pytest.raises(errors.WrongState):
        await bench.resumed(run_id)

    keeper.set()

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def test_a_run_may_fail_and_be_resumed_again() -> None:
    """Each resume discards only the lines of the last failure."""
    bench = await Bench().open()
    run_id = await failed(bench)
    bench.toolbox.fail("three")
    await bench.resumed(run_id)

    assert await bench.ended(run_id) == [RunState.FAILED]

    bench.toolbox.mend("three")
    await bench.resumed(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "two/1", "two/2", "three/1", "three/2"]

    await bench.close()


async def test_resuming_right_after_the_end_works() -> None:
    """A client that sees the failure and resumes at once is not refused because the run is unfinished."""
    bench = await Bench().open()
    bench.toolbox.fail("one")
    run_id = await bench.create(*toys.tools("one"))
    resumes: list[asyncio.Task[RunState]] = []
    bench.probes.at("run.after_ended", 1, lambda: resumes.append(asyncio.create_task(bench.resumed(run_id))))
    await bench.pool.submit(run_id)
    await bench.probes.passed("run.after_ended")
    bench.toolbox.mend("one")
    await pools.soon(resumes[0])

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()
