"""Usage sums: an amount that no call reported is unknown, and a fork adds nothing for the steps that it took over."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain import operations, usage_sums
from app.domain.records import Record, Usage
from tests.unit.engine import samples

UNKNOWN = Usage(input_tokens=None, output_tokens=None)


def call(number: int, **fields: Any) -> Record:
    """Return the record of an agent call."""
    asked = operations.AgentCall(agent_id="writer-1", backend="local", prompt=("Write.",))
    return samples.record(f"call-{number}", asked, number, **({"agent_id": "writer-1"} | fields))


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ([], Usage()),
        ([None], UNKNOWN),
        ([{"input_tokens": None, "output_tokens": None}], UNKNOWN),
        ([None, {"input_tokens": 0, "output_tokens": None}], Usage(input_tokens=0, output_tokens=None)),
        (
            [{"input_tokens": 3, "output_tokens": 4, "cost_usd": 0.5}, None],
            Usage(input_tokens=3, output_tokens=4, cost_usd=0.5),
        ),
        ([{"input_tokens": 2**63, "output_tokens": 4}], Usage(input_tokens=None, output_tokens=4)),
    ],
)
def test_tokens_are_unknown_where_no_call_reported_them(reported: list[Any], expected: Usage) -> None:
    """A run without calls used no tokens; where no call reported an amount, it is null and not 0."""
    lines = [call(number, usage=usage) for number, usage in enumerate(reported)]
    lines.append(samples.record("tool", samples.tool("x"), len(lines)))

    assert usage_sums.UsageTally(lines).total == expected


def test_a_step_shows_the_usage_that_the_sums_count() -> None:
    """A value in a line that is not an amount is not shown as one."""
    lines = [call(0, usage={"input_tokens": 2**53, "output_tokens": 2**53 + 1, "cost_usd": -1.0})]

    assert [line.usage for line in lines] == [Usage(input_tokens=2**53, output_tokens=None)]
    assert usage_sums.UsageTally(lines).total == lines[0].usage


def test_a_step_that_was_taken_over_is_no_call_of_the_fork() -> None:
    """A fork's sums contain no call for an agent's step of its source, which paid for it."""
    tally = usage_sums.UsageTally([call(0, taken_over=True, usage=None)])

    assert tally.sums() == ()
    assert tally.total == Usage()
