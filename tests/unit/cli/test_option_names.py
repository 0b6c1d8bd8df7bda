"""Refusals name options and arguments of the command line, not the fields of the request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner

from app import errors
from app.cli import budgets, notifications, options, root


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("$.webhook.signing_secret", "--signing-secret-file"),
        ("$.to[1]", "--email"),
        ("$.limits.cost_usd", "--max-cost"),
        ("query.cost_usd", "--max-cost"),
        ("$.name", "NAME"),
        ("$.args.to", "$.args.to"),
        ("$.unknown", "$.unknown"),
        ("$", "$"),
    ],
)
def test_a_refusal_names_the_option(path: str, shown: str):
    """The path of a flaw becomes the option or argument of its field; a recipe's argument keeps its path."""

    @click.command()
    @click.argument("name")
    @click.option("--signing-secret-file")
    @click.option("--email", "to", multiple=True)
    @click.option("--max-cost", "cost_usd")
    @options.anywhere
    def command(**_: Any) -> None:
        raise errors.RequestInvalid(f"{path}: is odd", flaws=[errors.Flaw(path=path, message="is odd")])

    with pytest.raises(errors.RequestInvalid) as refused:
        CliRunner().invoke(command, ["x"], catch_exceptions=False)

    assert refused.value.message == f"{shown}: is odd"
    assert refused.value.flaws[0].path == shown


def test_a_refusal_without_its_field_names_the_option():
    """A message that is that of a flaw alone gets the option, also in place of the field that it quotes."""

    @click.command()
    @click.option("--odd-one", "odd_one")
    @options.anywhere
    def command(**_: Any) -> None:
        flaw = errors.Flaw(path="$.odd_one", message="it is odd; omit `odd_one`")
        raise errors.RequestInvalid(flaw.message, flaws=[flaw])

    with pytest.raises(errors.RequestInvalid) as refused:
        CliRunner().invoke(command, [], catch_exceptions=False)

    assert refused.value.message == "--odd-one: it is odd; omit --odd-one"
    assert refused.value.flaws[0].message in refused.value.message


@pytest.mark.parametrize("words", [(), ("--webhook", "https://example.org/", "--email", "a@example.org")])
def test_an_endpoint_has_one_channel(words: tuple[str, ...]):
    """An endpoint without a channel, or with several, is refused with the options for channels."""
    done = CliRunner().invoke(notifications.add, list(words))

    assert done.exit_code == 2
    assert "--webhook URL, --email ADDRESS and -- PROGRAM" in done.output


def test_a_budget_has_a_limit(tmp_path: Any):
    """A budget without a limit is refused with the options for limits."""
    done = CliRunner().invoke(budgets.set_, ["daily", "--project", str(tmp_path)])

    assert done.exit_code == 2
    assert "--max-cost, --max-tokens or --max-calls" in done.output


def test_a_time_zone_belongs_to_a_day(tmp_path: Any):
    """A time zone for a budget that does not begin anew each day is refused, since it would change nothing."""
    words = ["daily", "--max-calls", "3", "--time-zone", "Europe/Berlin", "--project", str(tmp_path)]
    done = CliRunner().invoke(budgets.set_, words)

    assert done.exit_code == 2
    assert "--time-zone belongs to --per-day" in done.output


def valued(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Option, str]]:
    """Find the options with a value of a command and of those below it, each with its path and its help."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.commands[name]
            yield from valued(part, click.Context(part, parent=context, info_name=name))
    for option in command.params:
        if isinstance(option, click.Option) and not option.is_flag and not option.hidden:
            _, shown = option.get_help_record(context) or ("", "")
            yield f"{context.command_path} {option.opts[0]}", option, shown


def test_help_shows_every_default_and_variable():
    """The help of each option shows its default, unless that is empty or 0, and the variable that gives its value."""
    program = click.Context(root.control_room, info_name="control-room")
    silent = []
    for path, option, shown in valued(root.control_room, program):
        given = isinstance(option.default, str | int) and option.default not in ("", 0)
        if (given and not option.multiple and "default" not in shown) or str(option.envvar or "") not in shown:
            silent.append(path)

    assert not silent


@pytest.mark.parametrize(
    ("order", "shown"),
    [
        ("control-room runs resume r1", "control-room runs resume r1 --project 'a b'"),
        ("control-room serve --engine temporal", "control-room serve --engine temporal --project 'a b'"),
        ("control-room runs why r1 --server URL", "control-room runs why r1 --server URL"),
        ("control-room openapi", "control-room openapi"),
    ],
)
def test_a_next_command_names_the_folder_of_this_one(order: str, shown: str):
    """A command line to type next has the `--project` of the present command, if it accepts that."""

    @click.command()
    @options.anywhere
    def command(place: options.Place) -> None:
        click.echo(place.led(order))

    group = click.Group(commands={**root.control_room.commands, "command": command})

    assert CliRunner().invoke(group, ["command", "--project", "a b"], catch_exceptions=False).output == f"{shown}\n"
