"""Time zones: the names that the IANA database lists.

Further names on a machine, such as `localtime` or `posixrules`, have another meaning on another machine.
"""

from __future__ import annotations

import difflib
import functools
from importlib import resources


def fault(name: object) -> str | None:
    """Return why a name is not the name of a time zone, with the nearest name; None if it is one."""
    if isinstance(name, str) and name in _names():
        return None
    region = str(name)[:80].partition("/")[0].casefold()
    # Names of the same region only: a comparison with all six hundred would take long for a hostile name.
    names = {zone.casefold(): zone for zone in _names() if zone.casefold().startswith(region[:2] or "/")}
    near = names.get(str(name).casefold()) or next(
        iter(difflib.get_close_matches(str(name)[:80], names.values(), 1)), ""
    )
    return f"there is no time zone {name!r:.80}; " + (
        f"did you mean {near}?" if near else "use an IANA name: Europe/Berlin"
    )


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())
