"""Lazy commands: subcommands by name, each imported at its first use."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping, MutableMapping

import click


class LazyCommands(MutableMapping[str, click.Command]):
    """Commands of a group; only the help imports them all.

    Args:
        modules: Module below `app.cli` of each command, whose function has the command's name.
    """

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules
        self._added: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._added:
            module = importlib.import_module(f"app.cli.{self._modules[name]}")
            self[name] = getattr(module, name.replace("-", "_"))
        return self._added[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        _shorten(command)
        self._added[name] = command

    def __delitem__(self, name: str) -> None:
        del self._added[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules or name in self._added

    def __iter__(self) -> Iterator[str]:
        return iter({**self._modules, **self._added})

    def __len__(self) -> int:
        return len({**self._modules, **self._added})


def _shorten(command: click.Command) -> None:
    # Lists of commands show the first clause of the help completely, while click would cut off its first sentence.
    command.short_help = command.short_help or re.split(r"[;.:](?:\s|$)", command.help or "", maxsplit=1)[0]
    if isinstance(command, click.Group) and not isinstance(command.commands, LazyCommands):
        for each in command.commands.values():
            _shorten(each)
