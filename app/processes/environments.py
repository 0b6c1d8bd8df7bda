"""What commands inherit of this process: environment variables and the limit of open files.

Secrets are not inherited. The launcher has none, because every process of the same user can read its environment; a
command gets only the secrets that are named for it.
"""

# The service's own variables are left out: they hold its token and database, and would configure every command line
# started below it as a second service.

from __future__ import annotations

import resource
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from app.processes import process_markers

OWN_PREFIX = "CONTROL_ROOM_"
"""Prefix of the variables that configure this process, a token among them; commands do not get them."""

NOT_INHERITED = ("PWD", "OLDPWD")  # Variables that name a folder other than the command's own.


def inherited(environ: Mapping[str, str], withheld: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that a launcher hands on.

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


@contextmanager
def raised_descriptor_limit() -> Iterator[int]:
    """Raise the number of files that this process may open to the hard limit; each loaded run takes up to three.

    Yields:
        The limit before: programs get this one, because some look at every number up to it.
    """
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems name a limit that they do not grant.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        yield usual
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))
