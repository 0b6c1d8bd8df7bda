"""Commands in messages, help and documents: the program has each of them, and the options beside it."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator

import click
import pytest

from app.cli import root
from app.cli.agent_recipes import command as agent_recipes
from app.cli.orchestrate import command
from tests.architecture import sources

PROGRAMS: dict[str, click.Command] = {"control-room": root.control_room, "orchestrate": command.orchestrate}
CALL = re.compile(r"(?<![\w./-])(control-room|orchestrate)((?: +(?:[a-z][a-z-]*|--?[a-z][a-z-]*|[^\s`|;&]+))+)")
PAGES = ["README.md", *sorted(str(path.relative_to(sources.ROOT)) for path in (sources.ROOT / "docs").rglob("*.md"))]
IN_CONTAINER = re.compile(r"docker compose exec (?:-T )?control-room ")
"""The prefix that runs a command in the container of that name."""
SPANS = re.compile(r"```.*?```|`[^`\n]+`|^    .*$", re.DOTALL | re.MULTILINE)


def named(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each program that a text calls, with the words after its name."""
    for line in text.splitlines():
        for found in CALL.finditer(IN_CONTAINER.sub("", line)):
            yield found[1], found[2].split()


def lacks(program: str, words: list[str]) -> str | None:
    """Return which command or option of a call a program lacks; None if it has all of them."""
    here = PROGRAMS[program]
    while isinstance(here, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        found = here.commands.get(words[0])
        if found is None:
            return f"{program} has no command {words[0]}"
        here, words = found, words[1:]
    known = {option for part in here.params for option in (*part.opts, *part.secondary_opts)}
    known |= {"--help", "-h", "--version", "--verbose"} if isinstance(here, click.Group) else {"--help", "-h"}
    options = [word.rstrip(".,:)").partition("=")[0] for word in words if re.match(r"--[a-z]", word)]
    absent = [option for option in options if option not in known]
    return f"{program} … {here.name} has no option {absent[0]}" if absent else None


def messages() -> Iterator[str]:
    """Yield every text in the code that is not a docstring."""
    for module in sources.modules(sources.APP):
        described = (module.tree, *sources.definitions(module))
        docstrings = {id(node.body[0].value) for node in described if node.body and isinstance(node.body[0], ast.Expr)}
        for node in sources.walk(module.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield node.value


def helps(here: click.Command, context: click.Context | None = None) -> Iterator[str]:
    """Yield the help of a command and of all commands below it."""
    # A command keeps the help option that it makes first: one without the settings would lack `-h` for ever.
    inner = click.Context(here, parent=context, info_name=here.name, **here.context_settings)
    yield here.get_help(inner)
    for below in here.commands.values() if isinstance(here, click.Group) else ():
        yield from helps(below, inner)


def test_messages_and_help_name_commands_that_there_are() -> None:
    """No text that a program prints names a command or an option that the program lacks."""
    texts = [*messages(), *(text for program in PROGRAMS.values() for text in helps(program))]
    calls = [call for text in texts for call in named(text)]

    assert len(calls) > 20
    assert sorted({problem for call in calls if (problem := lacks(*call))}) == []


@pytest.mark.parametrize("name", PAGES)
def test_documents_name_commands_that_there_are(name: str) -> None:
    """No document shows a command or an option that its program lacks."""
    text = "\n".join(SPANS.findall((sources.ROOT / name).read_text(encoding="utf-8")))

    assert sorted({problem for call in named(text) if (problem := lacks(*call))}) == []


def test_the_comparison_finds_missing_commands_and_options() -> None:
    """The comparison finds a missing command and a missing option."""
    assert [lacks(*call) for call in named("try orchestrate repair x, or control-room runs list --sorted")] == [
        "orchestrate has no command repair",
        "control-room … list has no option --sorted",
    ]
    assert [lacks(*call) for call in named("orchestrate resume RUN --repair; control-room runs resume x")] == [
        None,
        None,
    ]


def reached(here: click.Command) -> Iterator[click.Command]:
    """Yield a command and all commands below it."""
    yield here
    for below in here.commands.values() if isinstance(here, click.Group) else ():
        yield from reached(below)


def test_every_command_can_be_called() -> None:
    """Each command that a module of `app.cli` defines belongs to a program."""
    known = {id(found) for program in PROGRAMS.values() for found in reached(program)}
    known |= {id(found) for found in reached(agent_recipes.agent_recipes)}
    defined = [
        (module.name, name)
        for module in sources.modules(sources.APP / "cli")
        for name, found in vars(importlib.import_module(module.name)).items()
        if isinstance(found, click.Command) and id(found) not in known
    ]

    assert len(known) > 100
    assert defined == []
