"""Plain commands: make commands that call one use case and show its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from app.cli import arguments, exit_codes, options
from app.cli.client import JsonObject, UseCase

Table = Callable[[Any], str]  # Converts an answer into text for people.


def shown(wanted: UseCase[..., Any], table: Table, meaning: str, *ids: str, name: str = "show") -> click.Command:
    """Return the command that shows what a use case returns for the ids on the command line."""

    @click.command(name, help=meaning)
    @options.as_json
    @options.anywhere
    def show(place: options.Place, as_json: bool, **given: str) -> int:
        return exit_codes.shown(place.ask(wanted, *(given[each] for each in ids)), as_json, table)

    show.params[:0] = [click.Argument([each]) for each in ids]
    return show


def removed(wanted: UseCase[[str], None], meaning: str, of: str, name: str = "remove") -> click.Command:
    """Return the command that removes the object with the id on the command line, without output."""

    @click.command(name, help=meaning)
    @options.anywhere
    def remove(place: options.Place, **given: str) -> int:
        place.ask(wanted, given[of])
        return exit_codes.ExitCode.DONE

    remove.params.insert(0, click.Argument([of]))
    return remove


def replaced(
    wanted: UseCase[[Mapping[str, Any]], JsonObject],
    table: Table,
    meaning: str,
    recipes: Callable[[JsonObject], Iterable[str | None]] = lambda document: (),
) -> click.Command:
    """Return the command `set FILE`, which replaces a document by that of a file.

    Args:
        recipes: Returns the recipes that the document names; the command warns of missing ones.
    """

    @click.command("set", help=meaning)
    @click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
    @options.as_json
    @options.anywhere
    def set_(place: options.Place, as_json: bool, file: Path) -> int:
        found = place.ask(wanted, arguments.read_file(file))
        arguments.point_out_recipes(place, recipes(found))
        return exit_codes.shown(found, as_json, table)

    return set_
