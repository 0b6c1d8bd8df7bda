"""Names of recipes in orders that count for later runs: one that no recipe has is pointed out, since it may be a typo.

A misspelt budget or policy would count for no run, and its author would not notice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from app import errors
from app.cli import formats, options, terminal


def point_out(place: options.Place, names: Iterable[str | None]) -> None:
    """Warn of names that no recipe has now; the order has been accepted, for the recipe may come later."""
    given = {name for name in names if name}
    if not given:
        return
    from app.cli import use_cases
    from app.domain import policies
    from app.flows import registry

    wanted = given - {policies.ANY, *registry.DRIVERS}
    # After the first key, a command without one may not list recipes.
    with contextlib.suppress(errors.ControlRoomError):
        known = [each["recipe_id"] for each in place.ask(use_cases.list_recipes)]
        for name in sorted(wanted.difference(known)):
            terminal.warn(f"warning: there is no recipe {name!r:.80} now{formats.nearest(name, known)}")
