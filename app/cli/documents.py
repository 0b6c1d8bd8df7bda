"""The commands `show` and `set` of what one JSON document of the project configures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from app.cli import arguments, exit_codes, options
from app.cli.client import Answer, UseCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document that commands show and replace."""

    show: UseCase[[], Answer]  # The use case that returns it.
    set: UseCase[[Mapping[str, Any]], Answer]  # The use case that replaces it by another one.
    table: Callable[[Answer], str]  # Makes what a person reads.
    show_help: str  # What `show` does.
    set_help: str  # What `set` does.


def commands(group: click.Group, document: Document) -> None:
    """Add `show` and `set FILE` to a group."""

    @group.command("show", help=document.show_help)
    @options.as_json
    @options.anywhere
    def show(place: options.Place, as_json: bool) -> int:
        return exit_codes.shown(place.ask(document.show), as_json, document.table)

    @group.command("set", help=document.set_help)
    @click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
    @options.as_json
    @options.anywhere
    def set_(place: options.Place, as_json: bool, file: Path) -> int:
        return exit_codes.shown(place.ask(document.set, arguments.read_file(file)), as_json, document.table)
