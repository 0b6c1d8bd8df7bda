"""Environments: what commands inherit from this process: environment variables and the limit of open files.

Commands do not inherit secrets. The launcher has none, because every process of the same user can read its
environment; a command only gets the secrets that its request names.
"""

# The service's own variables are withheld: they contain its token and database, and would configure every command line
# started below the service as a second service.

from __future__ import annotations

import resource
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from app.processes import process_markers

OWN_PREFIX = "CONTROL_ROOM_"
"""Prefix of the variables that configure this process, including its token; commands do not get them."""

NOT_INHERITED = ("PWD", "OLDPWD")  # Variables that name a folder other than the command's own.


def inherited(environ: Mapping[str, str], withheld: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that a launcher passes on.

    Args:
        withheld: Names of secrets.
    """
    return {name: value for name, value in environ.items() if not name.startswith(OWN_PREFIX) and name not in withheld}


def names(environ: Mapping[str, str], given: Iterable[str], withheld: Collection[str] = ()) -> list[str]:
    """Return the names of all variables that a command gets, sorted.

    Args:
        environ: Environment of this process.
        given: Names of the variables that are set for the command.
        withheld: Names of the secrets that the command does not get.
    """
    return sorted({*inherited(environ, withheld)}.difference(NOT_INHERITED) | {*given, process_markers.VARIABLE})


@contextmanager
def raised_descriptor_limit() -> Iterator[int]:
    """Raise the number of files that this process may open to the hard limit; each loaded run uses up to three.

    Yields:
        The previous limit: programs get that one, because some loop over every number up to the limit.
    """
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems report a limit that they do not grant.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        yield usual
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))
