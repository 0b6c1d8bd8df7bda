"""Options, variables and arguments of the command line, and their effects."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from app.cli.orchestrate import cleaning, options
from app.cli.orchestrate.running import Asked
from app.dialects.orchestrate import schema


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder, and remove the program's variables."""
    for name in ("DEBUG", "STATE_DIR", "LOG_LEVEL", "KEEP_RUNS"):
        monkeypatch.delenv(f"ORCHESTRATE_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


def asked(*arguments: str) -> tuple[Asked, dict[str, Any]]:
    """Return the values that options lead to."""
    found: list[tuple[Asked, dict[str, Any]]] = []

    @click.command()
    @options.context
    @options.to_run
    def command(asked: Asked, **more: Any) -> None:
        found.append((asked, options.context_of(more)))

    command.main([*arguments], standalone_mode=False)
    return found[0]


def test_a_run_gets_only_the_options_that_are_given():
    """A run gets no options that the command line does not have."""
    what, context = asked()

    assert (what.options, what.backup, context) == ({}, False, {})
    assert what.output.level == "info"


def test_options_of_the_run_are_passed_on():
    """Options of the dialect are passed to the run, numbers as numbers."""
    what, _ = asked("--on-error", "continue", "--max-retries", "2", "--retry-delay", "1.5", "--debug")

    assert what.options == {"on_error": "continue", "max_retries": 2, "retry_delay_ms": 1.5, "debug": True}
    assert (what.backup, what.output.level) == (True, "debug")


def test_more_retries_than_a_run_takes_are_a_usage_error():
    """The largest number of retries is that of the options of a run; one more is refused by the command line itself."""
    most = schema.OPTIONS["properties"]["max_retries"]["maximum"]

    assert asked("--max-retries", str(most))[0].options == {"max_retries": most}
    with pytest.raises(click.BadParameter, match=f"0<=x<={most}"):
        asked("--max-retries", str(most + 1))


def test_the_environment_gives_defaults(monkeypatch: pytest.MonkeyPatch):
    """Each variable is the default of its option, and the option wins."""
    monkeypatch.setenv("ORCHESTRATE_DEBUG", "1")
    monkeypatch.setenv("ORCHESTRATE_LOG_LEVEL", "warn")
    monkeypatch.setenv("ORCHESTRATE_STATE_DIR", "elsewhere")

    assert asked()[0].options == {"debug": True}
    assert asked()[0].output.level == "warn"
    assert asked()[0].place.shown == Path.cwd() / "elsewhere"
    assert asked("--log-level", "error")[0].output.level == "error"


def test_values_of_the_context_are_texts(tmp_path: Path):
    """Values on the command line are texts and win over the file, which may contain any JSON."""
    (tmp_path / "values.json").write_text(json.dumps({"a": 1, "b": {"c": [True]}}))
    _, context = asked("--context-file", "values.json", "--context", "a=2=3", "--context", "list:=[1]")

    assert context == {"a": "2=3", "b": {"c": [True]}, "list:": "[1]"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--on-error", "interactive"], "interactive is not supported"),
        (["--on-error", "panic"], "'panic' is not one of"),
        (["--max-retries", "-1"], "not in the range"),
        (["--retry-delay", "soon"], "not a valid float"),
        (["--quiet", "--verbose"], "contradict"),
    ],
)
def test_wrong_usage_is_named_in_the_refusal(arguments: list[str], message: str):
    """Wrong usage is refused with a message that names it."""
    with pytest.raises(click.UsageError) as refused:
        asked(*arguments)
    assert message in refused.value.format_message()


def test_ages_have_units():
    """An age is a number with a unit from seconds to weeks."""
    ages = [cleaning.age(text) for text in ("90s", "30m", "12h", "7d", "2w", "0d")]

    assert ages == [timedelta(seconds=90), timedelta(minutes=30), timedelta(hours=12), timedelta(7), timedelta(14),
                    timedelta(0)]  # fmt: skip
    for wrong in ("7", "d", "-1d", "1.5d", "7 d", "9999999d", "7D", ""):
        with pytest.raises(ValueError, match="is not an age"):
            cleaning.age(wrong)


def test_an_age_is_asked_for_or_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    """An age comes from the option or the environment, and a command without either is refused."""
    found: list[timedelta] = []

    @click.command()
    @click.option("--older-than", callback=options.age)
    def command(older_than: timedelta) -> None:
        found.append(older_than)

    refused = CliRunner().invoke(command, [])
    monkeypatch.setenv("ORCHESTRATE_KEEP_RUNS", "30")
    command.main([], standalone_mode=False)
    command.main(["--older-than", "1h"], standalone_mode=False)
    monkeypatch.setenv("ORCHESTRATE_KEEP_RUNS", "for ever")
    odd = CliRunner().invoke(command, [])

    assert found == [timedelta(30), timedelta(hours=1)]
    assert (refused.exit_code, odd.exit_code) == (2, 2)
    assert "ORCHESTRATE_KEEP_RUNS" in odd.output
