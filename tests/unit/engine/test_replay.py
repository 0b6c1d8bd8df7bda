"""Tests of replay: living lines are delivered in order, and a line that does not fit is a fault."""

from __future__ import annotations

import pytest

from app import errors
from app.domain import records
from app.engine import driver_context, driver_scheduler, replay, resume_rules
from tests.unit.engine import samples


async def _no_blob(blob):
    raise AssertionError(f"nobody should read {blob}")


def _made(drive, loaded):
    made = driver_context.DriverContext(loaded.start, lambda key, facts: None)
    return driver_scheduler.DriverScheduler(lambda: drive(made))


async def _sequence(ctx):
    for name in ("a", "b", "c"):
        await ctx.perform(name, samples.tool(name))


def _line(name, position, **fields):
    return samples.record(name, samples.tool(name), position, **fields)


async def test_living_lines_bring_the_driver_to_its_next_step():
    """A journal of two lines leaves the third step open."""
    loaded = samples.loaded(_line("a", 0), _line("b", 1))
    made = _made(_sequence, loaded)
    await replay.replay(made, loaded, _no_blob)

    assert list(made.asks) == ["c"]


async def test_dead_lines_are_passed_over():
    """Dead lines are ignored."""
    loaded = samples.loaded(_line("a", 0), _line("b", 1, output="old"), _line("b", 2, output="new"), dead={1})
    made = _made(_sequence, loaded)
    await replay.replay(made, loaded, _no_blob)

    assert list(made.asks) == ["c"]


async def test_a_try_that_was_not_final_is_not_handed_out():
    """The driver gets only the final try of a step."""
    failed = {"status": "failed", "final": False, "error": {"code": "x", "message": "y"}, "retry_at": samples.AT}
    loaded = samples.loaded(_line("a", 0, **failed))
    made = _made(_sequence, loaded)
    await replay.replay(made, loaded, _no_blob)

    assert list(made.asks) == ["a"]


async def test_another_operation_under_a_key_is_nondeterminism():
    """Another operation under a recorded key is a fault with the run, the key and both operations."""
    loaded = samples.loaded(samples.record("a", samples.tool("other")))

    with pytest.raises(errors.NondeterminismFault) as caught:
        await replay.replay(_made(_sequence, loaded), loaded, _no_blob)

    fault = caught.value
    assert fault.key == "a"
    assert fault.detail["run_id"] == loaded.start.run_id
    assert fault.detail["recorded"]["body"]["tool"] == "other"
    assert fault.detail["asked"]["body"]["tool"] == "a"


@pytest.mark.parametrize("name", ["x", "b"])
async def test_an_unexpected_line_is_nondeterminism(name):
    """A line of an unknown step, or of one out of order, is a fault."""
    loaded = samples.loaded(_line(name, 0))

    with pytest.raises(errors.NondeterminismFault, match="asks for a"):
        await replay.replay(_made(_sequence, loaded), loaded, _no_blob)


async def test_a_line_behind_the_driver_s_end_is_nondeterminism():
    """A line after the driver's end is a fault."""
    loaded = samples.loaded(*(_line(name, position) for position, name in enumerate("abcd")))

    with pytest.raises(errors.NondeterminismFault, match="nothing more"):
        await replay.replay(_made(_sequence, loaded), loaded, _no_blob)


async def test_a_line_of_a_cancelled_branch_may_come_late():
    """A line that arrived after its branch was cancelled is ignored."""

    async def branch(ctx, name):
        if not (await ctx.perform(name, samples.tool(name))).done:
            raise errors.StepError(name)

    async def drive(ctx):
        try:
            await ctx.gather({name: branch(ctx, name) for name in "ab"})
        except errors.StepError:
            await ctx.perform("c", samples.tool("c"))

    failed = {"status": "failed", "error": {"code": "x", "message": "y"}, "branch": "/1.a"}
    loaded = samples.loaded(_line("a", 0, **failed), _line("b", 1, branch="/1.b"))
    made = _made(drive, loaded)
    await replay.replay(made, loaded, _no_blob)

    assert list(made.asks) == ["c"]


async def test_contents_are_read_between_lines():
    """A driver that reads a large output gets it before the next line."""
    blob = records.BlobRef(sha256="0" * 64, size_bytes=9, text=True)

    async def drive(ctx):
        record = await ctx.perform("a", samples.tool("a"))
        text = await ctx.read(record.blob)
        await ctx.perform(text, samples.tool("b"))

    async def read(asked):
        assert asked == blob
        return "large"

    loaded = samples.loaded(_line("a", 0, output=None, blob=blob.to_json()))
    made = _made(drive, loaded)
    await replay.replay(made, loaded, read)

    assert list(made.asks) == ["large"]


async def test_adopted_lines_fit_any_operation_of_an_adopted_run_only():
    """Lines of an adopted run fit any operation, because they contain none; those of other runs do not."""
    line = _line("a", 0, operation={"hash": "adopted"})
    adopted, ordinary = samples.loaded(line, adopted=True), samples.loaded(line)
    made = _made(_sequence, adopted)
    await replay.replay(made, adopted, _no_blob)

    assert list(made.asks) == ["b"]

    with pytest.raises(errors.NondeterminismFault):
        await replay.replay(_made(_sequence, ordinary), ordinary, _no_blob)


def _positions(lines, *, causes=(), from_key=None, dead=()):
    loaded = samples.loaded(*lines, dead=set(dead))
    loaded.decisions.apply(
        {"kind": "ended", "at": samples.AT, "status": "failed", "lines": len(lines), "head": "", "causes": list(causes)}
    )
    return resume_rules.dead_positions(loaded, from_key)


def test_a_resume_repeats_the_cause_and_the_later_steps():
    """A resume without a named step repeats the step that caused the failure and the later ones."""
    lines = [_line(name, position) for position, name in enumerate("abcd")]

    assert _positions(lines, causes=[2]) == {2, 3}
    assert _positions(lines, causes=[]) == set()


def test_a_resume_gives_the_cause_all_its_attempts_again():
    """A resume also repeats the attempts of the cause that were not final: otherwise no retry would be left to it."""
    lines = [_line(name, position, final=position not in (1, 2)) for position, name in enumerate("abbbc")]

    assert _positions(lines, causes=[3]) == {1, 2, 3, 4}


def test_a_resume_from_a_step_kills_all_its_living_lines():
    """A resume from a step repeats from its first living line, including tries that were not final."""
    lines = [_line(name, position) for position, name in enumerate("abbc")]

    assert _positions(lines, from_key="b") == {1, 2, 3}
    assert _positions(lines, from_key="b", dead=[1]) == {2, 3}


def test_a_resume_from_a_step_reads_its_files_again():
    """A resume from a step repeats what was looked up for it, but not its condition, which its own files may change."""
    parts = {"a.input": "read_files", "a": "command", "b.when": "find_files", "b.files": "find_files", "b": "command"}
    lines = [
        _line(key, position, operation={"hash": "sha256:0", "body": {"kind": kind}})
        for position, (key, kind) in enumerate(parts.items())
    ]

    assert _positions(lines, from_key="b") == {3, 4}
    assert _positions(lines, from_key="a") == {0, 1, 2, 3, 4}


def test_a_resume_leaves_sibling_branches_alone():
    """A resume keeps later lines of sibling branches and repeats those in the cause's branch, above it or below it."""
    branches = ["", "/1.a", "/1.b", "/1.a/1.x", "/1.a", ""]
    lines = [_line(str(position), position, branch=branch) for position, branch in enumerate(branches)]

    assert _positions(lines, from_key="1") == {1, 3, 4, 5}
    assert _positions(lines, from_key="3") == {3, 4, 5}
    assert _positions(lines, from_key="2") == {2, 5}
    assert _positions(lines, from_key="0") == {0, 1, 2, 3, 4, 5}


def test_a_resume_from_an_unknown_step_names_the_known_ones():
    """A resume from an unknown step is refused with the known steps."""
    with pytest.raises(errors.RequestInvalid) as caught:
        _positions([_line("a", 0)], from_key="z")

    assert caught.value.code == "unknown_step"
    assert caught.value.detail == {"steps": ["a"]}


@pytest.mark.parametrize("dead", [{0}, {1}, {0, 2}])
async def test_branches_that_had_their_turn_keep_it(dead):
    """A branch with a line behind another branch's dead line is answered, and no further branch begins early."""

    async def drive(ctx):
        await ctx.gather({name: ctx.perform(name, samples.tool(name)) for name in "abcde"}, limit=2)

    lines = [
        samples.record(name, samples.tool(name), position, branch=f"/1.{name}") for position, name in enumerate("acb")
    ]
    loaded = samples.loaded(*lines, dead=dead)
    made = _made(drive, loaded)
    await replay.replay(made, loaded, _no_blob)
    dead_names = {lines[position].key for position in dead}

    assert dead_names <= set(made.asks)
    assert len(made.asks) == 2
    for key in sorted(dead_names):
        samples.answer(made, key, 9)
    assert set(made.asks) == {"d", "e"}
    made.close()


async def test_a_line_of_a_branch_without_its_turn_is_caught():
    """Without dead lines, a line of a branch that could not have begun is a fault."""

    async def drive(ctx):
        await ctx.gather({name: ctx.perform(name, samples.tool(name)) for name in "abc"}, limit=1)

    loaded = samples.loaded(samples.record("c", samples.tool("c"), 0, branch="/1.c"))
    made = _made(drive, loaded)
    with pytest.raises(errors.NondeterminismFault):
        await replay.replay(made, loaded, _no_blob)
    made.close()
