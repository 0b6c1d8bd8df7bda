"""Environments: which variables a command inherits.

Secrets are not among them. The launcher has none, for every process of the same user can read its environment; a
command gets those that are named for it.
"""

# The service's own variables are left out: they hold its token and database, and would configure every command line
# started below it as a second service.

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from app.processes import process_markers

OWN_PREFIX = "CONTROL_ROOM_"
"""Beginning of the variables that configure this process: none of a command's business, and a token is among them."""

NOT_INHERITED = ("PWD", "OLDPWD")
"""Variables that tell of another folder than the command's own."""


def inherited(environ: Mapping[str, str], withheld: Collection[str] = ()) -> dict[str, str]:
    """Return what a launcher gets to hand on.

    Args:
        withheld: Names of secrets.
    """
    return {name: value for name, value in environ.items() if not name.startswith(OWN_PREFIX) and name not in withheld}


def names(environ: Mapping[str, str], given: Iterable[str], withheld: Collection[str] = ()) -> list[str]:
    """Return the names of all variables that a command gets, in their order.

    Args:
        environ: Environment of this process.
        given: Names of what is set for the command.
        withheld: Names of the secrets that it does not get.
    """
    return sorted({*inherited(environ, withheld)}.difference(NOT_INHERITED) | {*given, process_markers.VARIABLE})
