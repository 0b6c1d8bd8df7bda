"""Tests of the core's values: plain JSON, masks, operations, decisions, verdicts, views."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app import errors
from app.domain import decisions, file_operations, operations, plain, plan_operations, records, runs, states
from app.domain.states import RunState
from app.engine import step_rules
from tests.unit.engine import samples

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_json)
def test_plain_values_survive_their_encoding(value):
    """A plain value is read back unchanged from both encodings."""
    made = plain.plain(value)

    assert json.loads(plain.encode(made)) == made
    assert json.loads(plain.canonical(made)) == made
    assert json.loads(plain.readable(made)) == made


@given(_json)
@example({"b": [1e16, 1e-7, 0.1, -0.0, 2**64, -(2**63)], "a": None, "\U0001f600": "\x7f\u2028", "\uffff": "1.5"})
def test_the_hashed_form_is_that_of_pythons_json(value):
    """The canonical form equals the standard library's JSON with sorted keys and no spaces."""
    made = plain.plain(value)

    expected = json.dumps(made, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    assert plain.canonical(made).decode() == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, {1: "x"}, {1, 2}, b"bytes", object(), [object()]])
def test_a_value_without_a_json_form_is_refused(value):
    """A value without a JSON form is refused before it is written."""
    with pytest.raises(errors.InputRefused) as caught:
        plain.plain(value)

    assert caught.value.code == "not_plain_json"


def test_lone_surrogates_are_replaced():
    """Lone surrogates are replaced."""
    assert plain.plain({"k": ["\ud800x"]}) == {"k": ["?x"]}


def test_a_preview_is_one_short_line():
    """A preview has folded white space and at most two hundred characters."""
    assert plain.preview("a\n\n  b") == "a b"
    assert len(plain.preview("word " * 100)) <= plain.PREVIEW_CHARACTERS
    assert plain.preview({"a": 1}) == '{"a":1}'


def test_secrets_at_any_place_are_masked():
    """Secrets are masked in nested values, keys and longer texts, the longest first; very short ones are not."""
    masker = plain.Masker(["hunter2", "hunter2000", "abc"])

    assert masker.mask({"hunter2": ["x hunter2000 y", 7, None]}) == {"***": ["x *** y", 7, None]}
    assert masker.mask("abc") == "abc"


def test_an_operation_hides_its_defaults():
    """The body of an operation omits fields with default values, and its retry policy."""
    assert operations.body(samples.tool("x", a=(1, 2))) == {"kind": "tool_call", "tool": "x", "args": {"a": [1, 2]}}
    retried = operations.Timer(seconds=3, retry=operations.RetryPolicy(max_attempts=2))

    captured = operations.Command(argv=("ls",), capture=operations.Capture(mode="lines"))

    assert operations.body(retried) == {"kind": "timer", "seconds": 3}
    assert operations.body(captured) == {"kind": "command", "argv": ["ls"], "capture": {"mode": "lines"}}


def test_a_fingerprint_does_not_depend_on_the_order_of_keys():
    """Equal operations have equal fingerprints for any order of keys."""
    one = operations.fingerprint(plain.canonical({"kind": "x", "a": 1}))

    assert one == operations.fingerprint(plain.canonical({"a": 1, "kind": "x"}))
    assert one != operations.fingerprint(plain.canonical({"a": 2, "kind": "x"}))
    assert one.startswith("sha256:")


@given(st.sets(st.integers(min_value=0, max_value=300)))
def test_ranges_hold_any_set_of_positions(positions):
    """Positions of dead lines are written as ranges and read back completely."""
    assert decisions.expand(decisions.ranges(positions)) == positions


def _fold(*lines):
    return decisions.fold({"at": samples.AT, **line} for line in lines)


_ENDED = {"kind": "ended", "status": "failed", "lines": 1, "head": "sha256:00", "causes": [0]}


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([], RunState.PENDING),
        ([{"kind": "taken"}], RunState.RUNNING),
        ([{"kind": "taken"}, {"kind": "paused", "reason": "x"}], RunState.PAUSED),
        ([{"kind": "taken"}, {"kind": "paused", "reason": "x"}, {"kind": "unpaused"}], RunState.RUNNING),
        ([{"kind": "taken"}, {"kind": "cancel_requested"}], RunState.RUNNING),
        ([{"kind": "taken"}, _ENDED], RunState.FAILED),
        ([{"kind": "taken"}, _ENDED, {"kind": "resumed", "dead": [[0, 0]]}], RunState.PENDING),
        ([{"kind": "taken"}, {"kind": "paused", "reason": "x"}, _ENDED], RunState.FAILED),
    ],
)
def test_the_state_is_derived_from_decisions_alone(lines, status):
    """The state of a run is derived from its decisions alone."""
    assert _fold(*lines).status is status


def test_a_resume_resets_tries_due_times_and_the_cancel():
    """A resume resets tries, due times and the cancel, and keeps dead lines and overrides."""
    begun = {"kind": "started", "key": "a", "attempt": 1, "operation": "h", "due_at": samples.AT}
    folded = _fold(
        begun,
        {"kind": "cancel_requested"},
        _ENDED,
        {"kind": "resumed", "dead": [[0, 1]], "overrides": {"args": {"x": 1}}},
    )

    assert folded.cancel_requested_at is None
    assert folded.attempts == {}
    assert folded.due == {}
    assert folded.dead == {0, 1}
    assert folded.overrides == {"args": {"x": 1}, "resumed": True}
    assert folded.highest_attempt == {"a": 1}


@pytest.mark.parametrize("kind", ["unpaused", "released"])
def test_tries_are_forgiven(kind):
    """An unpause and a release reset the counted tries and keep due times."""
    begun = {"kind": "started", "key": "a", "attempt": 1, "operation": "h", "due_at": samples.AT}
    folded = _fold(begun, {"kind": kind})

    assert folded.attempts == {}
    assert folded.due == {"a": samples.AT}


def _begun(*attempts):
    return [decisions.Started(key="a", attempt=attempt, operation="h", at=samples.AT) for attempt in attempts]


@pytest.mark.parametrize(
    ("operation", "attempts", "recorded", "verdict"),
    [
        (samples.tool("x"), [], [], "perform"),
        (samples.tool("x"), [1], [], "perform"),
        (samples.tool("x"), [1, 2], [], "perform"),
        (samples.tool("x"), [1, 2, 3], [], "crash_loop"),
        (samples.tool("x"), [1, 2, 3], [2], "perform"),
        (operations.Timer(seconds=1), [1, 2, 3], [], "perform"),
        (operations.ToolCall(tool="x", args={}, on_interrupted="ask"), [1], [], "ask"),
        (operations.ToolCall(tool="x", args={}, on_interrupted="fail"), [1], [], "fail"),
        (operations.ToolCall(tool="x", args={}, on_interrupted="fail"), [1], [1], "perform"),
    ],
)
def test_a_step_that_was_cut_off_is_rescued_by_its_policy(operation, attempts, recorded, verdict):
    """The rescue of an interrupted step follows its policy; only tries without a line count, and waits do not."""
    assert step_rules.rescue(operation, _begun(*attempts), frozenset(recorded)).value == verdict


def test_retries_are_counted_capped_and_chosen_by_code():
    """The delay before a retry grows up to its maximum, depends on the error code, and ends with the last try."""
    policy = operations.RetryPolicy(max_attempts=4, codes=("busy",), initial_seconds=2, factor=10, max_seconds=30)
    busy, broken = step_rules.failed("busy", "b"), step_rules.failed("broken", "b")

    assert [step_rules.retry_delay_seconds(policy, busy, tries) for tries in (1, 2, 3, 4)] == [2, 20, 30, None]
    assert step_rules.retry_delay_seconds(policy, broken, 1) is None
    assert step_rules.retry_delay_seconds(None, busy, 1) is None
    assert step_rules.retry_delay_seconds(policy, records.Result(output="x"), 1) is None


def test_a_result_without_its_error_is_a_failure():
    """A failed result without an error, and a done one with an error, are `bad_result`."""
    error = records.StepError(code="x", message="y")

    for result in (records.Result(status=states.StepState.FAILED), records.Result(error=error)):
        told = step_rules.unsound(result).error

        assert told is not None
        assert told.code == "bad_result"


def test_finished_states_only_leave_by_a_resume():
    """A done run has no further moves, and a failed or cancelled one only moves to pending."""
    assert states.MOVES[RunState.DONE] == frozenset()
    assert states.MOVES[RunState.FAILED] == states.MOVES[RunState.CANCELLED] == {RunState.PENDING}
    assert set(states.MOVES) == set(RunState)


def test_a_transition_knows_where_it_may_come_from():
    """A transition has the states from which it may be made."""
    assert runs.Transition.begin("r", samples.AT).since == {
        RunState.PENDING,
        RunState.RUNNING,
        RunState.WAITING,
        RunState.PAUSED,
    }
    assert RunState.DONE not in runs.Transition.queue("r", samples.AT).since


def test_the_start_of_a_run_is_read_back_as_written():
    """The start of a run is read back as written, also with unknown fields of a later version."""
    start = samples.start(args={"a": [1]}, labels={"k": "v"})

    assert runs.RunStart.from_json(json.loads(plain.encode(start.to_json())) | {"later": 1}) == start


@pytest.mark.parametrize(
    ("policy", "error", "again"),
    [
        ({"exit_codes": (1, 124)}, {"code": "exit_code", "detail": {"exit_code": 1}}, True),
        ({"exit_codes": (1, 124)}, {"code": "exit_code", "detail": {"exit_code": 3}}, False),
        ({"exit_codes": (1,), "codes": ("timeout",)}, {"code": "timeout", "detail": {}}, True),
        ({"exit_codes": (1,)}, {"code": "path_outside_workspace", "detail": {}}, False),
        ({"final_exit_codes": (2,)}, {"code": "exit_code", "detail": {"exit_code": 2}}, False),
        ({"final_exit_codes": (2,)}, {"code": "exit_code", "detail": {"exit_code": 7}}, True),
    ],
)
def test_another_try_by_exit_code(policy, error, again):
    """A retry policy may name exit codes to retry, or those not to retry."""
    result = step_rules.failed(error["code"], "", error["detail"])
    policy = operations.RetryPolicy(max_attempts=2, initial_seconds=5, **policy)

    assert (step_rules.retry_delay_seconds(policy, result, 1) == 5) is again


def test_only_repeatable_operations_begin_without_a_line():
    """Only operations that can be repeated without a second effect may begin without a durable line.

    Issues have ids derived from their run. Child runs, and those of a plan's tasks and chief, have their parent's key.
    """
    unsynced = {
        kind.__name__
        for kind in _operations(operations.Operation)
        if not kind.outside and kind.__module__.startswith("app.domain.")
    }

    assert file_operations.MoveFile.outside
    assert not operations.CloseFindings.outside
    assert not plan_operations.StartTask.outside
    assert unsynced == {
        "ToolCall", "Check", "CheckEvidence", "FindFiles", "ReadFiles", "WaitForFiles", "Timer", "Gate", "Input",
        "Refusal", "Skip", "ChildRun", "OpenIssue", "CloseFindings", "CloseFailedChecks",
        "StartTask", "AskChief", "TakeTasks", "ReadOutputs", "CheckTask", "StartReview", "ReadReview",
    }  # fmt: skip


def _operations(kind):
    for below in kind.__subclasses__():
        yield below
        yield from _operations(below)
