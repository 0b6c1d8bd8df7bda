"""Details of a run and sums of prices as text."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest

from app import resources
from app.cli import formats, root, statistics
from app.cli.top import columns
from app.dialects.amplifier import agents
from app.domain import operations, plain, records
from app.engine import open_steps
from app.services import step_requests


def test_a_run_names_its_starter_and_the_command_that_shows_its_question() -> None:
    """A run is printed with its author and the command for each open gate."""
    step: dict[str, Any] = {"key": "ask", "phase": None, "status": "running", "gate_id": "gate_1"}
    detail = {
        "run_id": "r",
        "status": "waiting",
        "task": {"description": "Ask"},
        "started_by": {"name": "nightly", "claimed": False, "via": "trigger"},
        "steps": [step],
    }
    shown = formats.run(detail)

    assert "started by  nightly" in shown
    assert "control-room gates show gate_1" in shown


def test_a_fork_names_its_source_and_the_steps_that_it_took_over() -> None:
    """A fork is printed with its source, and marks the steps that it took over."""
    steps: list[dict[str, Any]] = [{"key": "a", "status": "done", "taken_over": True}, {"key": "b", "status": "done"}]
    detail = {"run_id": "r", "status": "done", "forked_from": "s", "task": {"description": ""}, "steps": steps}
    rows = [line.split()[1:] for line in formats.run(detail).splitlines()]

    assert ["s"] in rows
    assert ["a", "-", "done,", "taken", "over", "-", "-"] in rows
    assert ["b", "-", "done", "-", "-"] in rows


@pytest.mark.parametrize(
    ("placed", "told"),
    [({"worker": "dir_1", "host": "two"}, "two (worker dir_1)"), ({"worker": "dir_1"}, "worker dir_1")],
)
def test_a_run_names_the_machine_on_which_it_is_placed(placed: dict[str, str], told: str) -> None:
    """A run that is placed on a worker is printed with the worker, and with its machine if that is known."""
    detail = {"run_id": "r", "status": "running", "task": {"description": "Ask"}, "placed": placed}

    assert re.search(rf"^placed on +{re.escape(told)}$", formats.run(detail), re.MULTILINE)


@pytest.mark.parametrize(
    ("reason", "says_more"), [("storage_error", True), ("database_away", True), ("paused_by_person", False)]
)
def test_an_order_whose_effect_cannot_be_written_says_so(reason: str, says_more: bool) -> None:
    """An order that waits for a full disk is not answered with the run's state alone."""
    told = formats.moved({"run_id": "r", "status": "paused", "reason": reason})

    assert told.startswith(f"run r paused ({reason})")
    assert ("takes effect once" in told) == says_more


@pytest.mark.parametrize(
    ("status", "done", "expected"),
    [("waiting", 1, "1 of 1 steps + gate"), ("done", 1, "1 of 1 steps"), ("waiting", 0, "0 of 1 steps")],
)
def test_a_gate_after_the_last_step_is_shown(status: str, done: int, expected: str) -> None:
    """The progress of a run whose steps are all finished mentions an open gate."""
    detail = {"status": status, "task": {"description": "Ask"}, "current_step_index": done, "total_steps": 1}
    (line,) = [line for line in formats.run(detail).splitlines() if line.startswith("progress")]

    assert line.split(maxsplit=1)[1] == expected
    assert columns.progress(detail) == expected.replace(" of ", "/").replace(" steps", "")


@pytest.mark.parametrize(
    ("reported", "unpriced", "silent", "shown"),
    [
        (None, 0, 0, "nothing, 0 tokens in, 0 out"),
        (None, 0, 1, "1 call that reported nothing, 0 tokens in, 0 out"),
        (0.5, 2, 3, "0.5000 USD, 2 calls unpriced, 3 calls that reported nothing, 0 tokens in, 0 out"),
    ],
)
def test_calls_of_unknown_cost_are_not_nothing(reported: float | None, unpriced: int, silent: int, shown: str) -> None:
    """The cost of a day names the calls that reported no price, and those that reported nothing."""
    sums = {"input_tokens": 0, "output_tokens": 0, "cost_usd": reported, "cost_estimated_usd": None}

    assert statistics._spend({**sums, "calls_without_price": unpriced, "calls_silent": silent}) == shown


def test_sums_of_prices_have_no_dust() -> None:
    """A sum of binary fractions is printed as a rounded price."""
    counts = dict.fromkeys(("runs", "calls", "calls_silent", "input_tokens", "output_tokens", "calls_without_price"), 1)
    row = {"name": "draft", "cost_usd": 5.1 + 0.1, "cost_estimated_usd": None, **counts}

    assert "5.2  " in statistics._usage({"by": "recipe", "rows": [row], "total": {**row, "cost_usd": 5.2 + 1e-15}})


@pytest.mark.parametrize(
    ("read", "written", "price", "step", "run"),
    [
        (12, 5, 0.5, "12/5 $0.50", "17"),
        (None, 5, None, "-/5", "5"),
        (None, None, 0.5, "$0.50", "-"),
        (None, None, None, "-", "-"),
        (0, 0, None, "0/0", "0"),
    ],
)
def test_unreported_tokens_are_not_printed_as_a_number(
    read: int | None, written: int | None, price: float | None, step: str, run: str
) -> None:
    """Amounts of tokens that were not reported are dashes, or absent, and never 0."""
    usage = {"input_tokens": read, "output_tokens": written, "cost_usd": price}
    line = {"key": "draft", "phase": None, "status": "done", "usage": usage, "output_preview": "a scene"}

    assert formats.steps([line]).splitlines()[1].split("done")[1].removesuffix("a scene").strip() == step
    assert columns.tokens(usage) == run


async def test_a_command_is_shown_with_the_values_that_it_names() -> None:
    """A command is printed with the recipe values that it uses as variables, and without other variables."""
    env = {"RECIPE_VALUE_1": "two words", "OTHER": "x"}
    command = operations.Command(argv=("bash", "-c", 'sleep "${RECIPE_VALUE_1}"'), env=env)
    wait = open_steps.StepWait(key="nap", operation=command, attempt=1, since=None)

    async def unread(ref: records.BlobRef) -> plain.Json:
        raise AssertionError(ref)

    shown = await step_requests.shown(wait, unread, plain.Masker())

    assert shown.text == "RECIPE_VALUE_1='two words'\nsleep \"${RECIPE_VALUE_1}\""


def test_the_scripted_error_of_the_page_is_retried() -> None:
    """The scripted error in the example of agents.md has a code that amplifier recipes retry."""
    text = (resources.bundled("recipes").parent / "docs" / "reference" / "agents.md").read_text()
    (code,) = re.findall(r'"draft": \[\{"error": \{"code": "(\w+)"', text)

    assert code in agents.TRANSIENT


def test_suggested_commands_name_the_asked_service() -> None:
    """Suggested commands that can ask a service name the service that was asked; other commands do not."""
    own = ["control-room runs unpause r", "control-room budgets set daily --max-cost N"]
    others = ["control-room worker --serve tools", "control-room serve", "control-room runs why r --server u"]
    chain = [{"run_id": "r", "kind": "parked", "since": None, "act": act} for act in own + others]
    given, runs = ["r", "--server", "http://127.0.0.1:1"], root.control_room.commands["runs"]
    assert isinstance(runs, click.Group)
    above = click.Context(runs, parent=click.Context(root.control_room))
    with runs.commands["why"].make_context("why", given, above):
        shown = formats.explanation({"sentence": "It waits.", "chain": chain})

    assert shown.splitlines()[-5:] == [f"{act} --server http://127.0.0.1:1" for act in own] + others
