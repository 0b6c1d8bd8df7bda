"""Steps that no tool or agent performs."""

from __future__ import annotations

from app.domain import operations, states
from app.engine import refusal_performers
from tests.unit.calls import Harness


async def test_a_refusal_fails_the_step_with_its_code() -> None:
    """A refusal fails the step with the operation's code, message and facts."""
    refusal = operations.Refusal(code="undefined_vars", message="There is no x.", detail={"undefined_vars": ["x"]})
    result = await refusal_performers.RefusalPerformer().perform(Harness().call(refusal))

    assert result.status is states.StepState.FAILED
    assert result.error is not None
    assert (result.error.code, result.error.message) == ("undefined_vars", "There is no x.")
    assert result.error.detail == {"undefined_vars": ["x"]}


async def test_a_skip_does_not_count_as_a_failure() -> None:
    """A skip is recorded as `skipped`, with a one-line reason and its facts as the output."""
    skip = operations.Skip(reason="the condition\ndoes not hold", detail={"exit_code": 0})
    result = await refusal_performers.SkipPerformer().perform(Harness().call(skip))

    assert (result.status, result.error) == (states.StepState.SKIPPED, None)
    assert (result.output, result.summary) == ({"exit_code": 0}, "the condition does not hold")
