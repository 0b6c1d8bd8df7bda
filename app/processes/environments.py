"""
Environments: which variables a command inherits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.processes import marks

OWN_PREFIX = "CONTROL_ROOM_"
"""Beginning of the variables that configure this process: none of a command's business, and a token is among them."""

NOT_INHERITED = ("PWD", "OLDPWD")
"""Variables that tell of another folder than the command's own."""


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """
    Return what a launcher gets to hand on.
    """
    return {name: value for name, value in environ.items() if not name.startswith(OWN_PREFIX)}


def names(environ: Mapping[str, str], given: Iterable[str]) -> list[str]:
    """
    Return the names of all variables that a command gets, in their order.

    Args:
        environ: Environment of this process.
        given: Names of what is set for the command.
    """
    return sorted({*inherited(environ)}.difference(NOT_INHERITED) | {*given, marks.VARIABLE})
