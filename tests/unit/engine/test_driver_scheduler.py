"""Tests of the driver scheduler: stepping, blocking, gathering and cancelling branches."""

from __future__ import annotations

import asyncio

import pytest

from app import errors
from app.domain import records, runs
from app.engine.driver_scheduler import STEPS_AT_ONCE
from tests.unit.engine import samples


async def _two_steps(ctx):
    first = await ctx.perform("first", samples.tool("one"))
    second = await ctx.perform("second", samples.tool("two", seen=first.output))
    return runs.Ending(reason=second.output)


def test_a_driver_is_blocked_until_its_record_is_handed_out():
    """In a sequence one request is open at a time, and each record leads to the next request."""
    scheduler, _ = samples.scheduler(_two_steps)
    scheduler.start()

    assert list(scheduler.asks) == ["first"]

    samples.answer(scheduler, "first", output="red")

    assert scheduler.asks["second"].body["args"] == {"seen": "red"}

    samples.answer(scheduler, "second", output="blue")

    assert scheduler.finished
    assert scheduler.result.reason == "blue"
    assert scheduler.failure is None


def test_a_failure_of_the_driver_is_kept():
    """An exception of the driver becomes the failure of its scheduler."""

    async def drive(ctx):
        await ctx.perform("only", samples.tool("one"))
        raise errors.RunFailed("no good", causes=("only",))

    scheduler, _ = samples.scheduler(drive)
    scheduler.start()
    samples.answer(scheduler, "only")

    assert scheduler.finished
    assert isinstance(scheduler.failure, errors.RunFailed)


def test_a_gather_asks_for_all_its_branches_at_once():
    """The branches of a gather ask at the same time, and their results are in the given order."""

    async def branch(ctx, name):
        return (await ctx.perform(name, samples.tool("one"))).output

    async def drive(ctx):
        return await ctx.gather({name: branch(ctx, name) for name in ("a", "b", "c")})

    scheduler, _ = samples.scheduler(drive)
    scheduler.start()

    assert list(scheduler.asks) == ["a", "b", "c"]
    assert [ask.branch for ask in scheduler.asks.values()] == ["/1.a", "/1.b", "/1.c"]

    for name in ("c", "a", "b"):
        samples.answer(scheduler, name, output=name.upper())

    assert scheduler.result == {"a": "A", "b": "B", "c": "C"}
    assert list(scheduler.result) == ["a", "b", "c"]


def test_a_limited_gather_starts_branches_as_others_end():
    """A limited gather starts its branches in order, and no more than the limit are open."""

    async def branch(ctx, name):
        await ctx.perform(name, samples.tool("one"))

    async def drive(ctx):
        await ctx.gather({name: branch(ctx, name) for name in "abcd"}, limit=2)

    scheduler, _ = samples.scheduler(drive)
    scheduler.start()

    assert list(scheduler.asks) == ["a", "b"]

    samples.answer(scheduler, "b")

    assert list(scheduler.asks) == ["a", "c"]

    for name in ("a", "c", "d"):
        samples.answer(scheduler, name)

    assert scheduler.finished


def test_the_first_failing_branch_cancels_its_siblings():
    """A failing branch withdraws its siblings' requests, runs their clean-up, and the driver gets its error."""
    cleaned = []

    async def good(ctx, name):
        try:
            await ctx.gather({"deep": ctx.perform(name, samples.tool("one"))})
        finally:
            cleaned.append(name)

    async def bad(ctx):
        await ctx.perform("bad", samples.tool("one"))
        raise errors.StepError("broken")

    async def drive(ctx):
        try:
            await ctx.gather({"a": good(ctx, "a"), "bad": bad(ctx), "c": good(ctx, "c")})
        except errors.StepError as error:
            return (await ctx.perform("after", samples.tool(str(error)))).output
        return None

    scheduler, _ = samples.scheduler(drive)
    scheduler.start()
    samples.answer(scheduler, "bad")

    assert list(scheduler.asks) == ["after"]
    assert cleaned == ["a", "c"]
    assert scheduler.was_cancelled("/1.a/1.deep")
    assert scheduler.was_cancelled("/1.c")
    assert not scheduler.was_cancelled("/1.bad")
    assert not scheduler.was_cancelled("")
    assert not scheduler.was_cancelled("/1.ab")


def test_a_patient_gather_keeps_errors_in_place():
    """With `fail_fast=False` every branch continues, and an error takes the place of its result."""

    async def branch(ctx, name):
        record = await ctx.perform(name, samples.tool("one"))
        if not record.done:
            raise errors.StepError(name)
        return name

    async def drive(ctx):
        return await ctx.gather({name: branch(ctx, name) for name in "ab"}, fail_fast=False)

    scheduler, _ = samples.scheduler(drive)
    scheduler.start()
    samples.answer(scheduler, "a", status="failed", error={"code": "x", "message": "y"})

    assert list(scheduler.asks) == ["b"]

    samples.answer(scheduler, "b")

    assert isinstance(scheduler.result["a"], errors.StepError)
    assert scheduler.result["b"] == "b"


def test_an_empty_gather_is_over_at_once():
    """A gather without branches ends at once."""

    async def drive(ctx):
        return await ctx.gather({})

    scheduler, _ = samples.scheduler(drive)
    scheduler.start()

    assert scheduler.finished
    assert scheduler.result == {}


def test_the_same_key_twice_is_the_driver_s_fault():
    """A driver that uses a key twice is stopped, because the journal would be ambiguous."""

    async def drive(ctx):
        await ctx.perform("same", samples.tool("one"))
        await ctx.perform("same", samples.tool("one"))

    scheduler, _ = samples.scheduler(drive)
    scheduler.start()

    with pytest.raises(errors.DriverFault, match="twice") as caught:
        samples.answer(scheduler, "same")

    assert caught.value.code == "key_repeated"


@pytest.mark.parametrize("key", ["", "a\nb", "nul\0", "x" * 301])
def test_a_key_is_short_printable_text(key):
    """A key that is empty, too long or not printable is refused."""

    async def drive(ctx):
        await ctx.perform(key, samples.tool("one"))

    scheduler, _ = samples.scheduler(drive)

    with pytest.raises(errors.DriverFault, match="is not a key"):
        scheduler.start()


def test_a_driver_that_awaits_anything_else_is_stopped():
    """A driver that awaits anything outside its context is stopped."""

    async def drive(ctx):
        await asyncio.sleep(0)

    scheduler, _ = samples.scheduler(drive)

    with pytest.raises(errors.DriverFault, match="not from its context"):
        scheduler.start()


def test_no_driver_can_swallow_a_fault():
    """A fault is raised outside the driver, which is closed and does not see it."""
    seen = []

    async def drive(ctx):
        try:
            await ctx.perform("bad\nkey", samples.tool("one"))
        except BaseException as error:
            seen.append(type(error))
            raise

    scheduler, _ = samples.scheduler(drive)

    with pytest.raises(errors.DriverFault):
        scheduler.start()

    scheduler.close()

    assert seen == [GeneratorExit]


def test_a_blob_is_read_before_the_driver_continues():
    """The content of a blob is requested separately from records."""
    blob = records.BlobRef(sha256="0" * 64, size_bytes=3, text=True)

    async def drive(ctx):
        return await ctx.read(blob)

    scheduler, _ = samples.scheduler(drive)
    scheduler.start()

    assert [read.blob for read in scheduler.reads] == [blob]

    scheduler.answer(scheduler.reads[0], "abc")

    assert scheduler.result == "abc"


def test_closing_drops_every_branch():
    """A closed driver runs its clean-up and makes no further request."""
    cleaned = []

    async def branch(ctx, name):
        try:
            await ctx.perform(name, samples.tool("one"))
        finally:
            cleaned.append(name)

    async def drive(ctx):
        try:
            await ctx.gather({name: branch(ctx, name) for name in "ab"})
        finally:
            cleaned.append("main")

    scheduler, _ = samples.scheduler(drive)
    scheduler.start()
    scheduler.close()

    assert cleaned == ["a", "b", "main"]
    assert scheduler.asks == {}


async def test_many_branches_are_stepped_in_portions():
    """A thousand branches are stepped in portions, without a change of their order."""

    async def forks(ctx):
        branches = {str(number): ctx.perform(f"s{number}", samples.tool("one")) for number in range(1000)}
        return list(await ctx.gather(branches))

    scheduler, _ = samples.scheduler(forks)
    scheduler.start()
    portions = [len(scheduler.asks)]
    while scheduler.ready:
        scheduler.advance()
        portions.append(len(scheduler.asks) - sum(portions))

    assert list(scheduler.asks) == [f"s{number}" for number in range(1000)]
    assert max(portions) <= STEPS_AT_ONCE
