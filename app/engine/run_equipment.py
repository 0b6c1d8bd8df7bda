"""Equipment: the parts that all runs of a process share, and the fault that parks a run."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import cast

from app import clock, errors
from app.domain import plain
from app.domain.runs import RunStart
from app.engine import ports, probes
from app.engine.spending import Spending

_log = logging.getLogger(__name__)


KEPT_RECIPES = 64  # Number of recipes of which a copy is kept for later runs.


class Interner:
    """The frozen recipes of the newest runs, shared by runs with equal ones."""

    def __init__(self, kept: int = KEPT_RECIPES) -> None:
        self._kept = kept
        self._newest: OrderedDict[str, RunStart] = OrderedDict()

    def shared(self, start: RunStart) -> RunStart:
        """Return the same facts, sharing the frozen recipe and its parts with other runs."""
        other = self._newest.get(start.recipe_sha256)
        if other is not None and other.recipe is start.recipe and other.frozen is start.frozen:
            return start
        if other is not None and (other.recipe, other.frozen) == (start.recipe, start.frozen):
            self._newest.move_to_end(start.recipe_sha256)
            return dataclasses.replace(start, recipe=other.recipe, frozen=other.frozen)
        self._newest[start.recipe_sha256] = start
        if len(self._newest) > self._kept:
            self._newest.popitem(last=False)
        return start

    def compact(self, start: RunStart) -> RunStart:
        """Return the same facts, sharing all of them that equal those of another run of the recipe."""
        if (other := self._newest.get(start.recipe_sha256)) is None or other is start:
            return start
        facts = ((name, getattr(other, name), getattr(start, name)) for name in RunStart.__slots__)
        return RunStart(**{name: theirs if theirs == ours else ours for name, theirs, ours in facts})


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """The parts that all runs of a process share."""

    performers: dict[str, ports.Performer]  # Performers by kind of operation.
    clock: clock.Clock  # The time.
    masker: plain.Masker  # Hides secrets before a value is encoded.
    probes: probes.Probes  # Named points for tests.
    interner: Interner = field(default_factory=Interner)  # Frozen facts that runs share.
    sources: Mapping[str, ports.Source] = field(default_factory=dict)
    """Sources that supply values to inputs, by the names of the inputs."""
    looks: Mapping[str, ports.Source] = field(default_factory=dict)
    """The same for an engine without memory of its runs: each returns the value that is available now, or None."""
    environ: Mapping[str, str] = field(default_factory=dict)  # Environment whose variables recipes can name as secrets.
    fair_label: str | None = None
    """Label whose values share the queue in turns; None: runs are served in the order of arrival."""
    stalled_after_seconds: float | None = None
    """Silence after which a step at work counts as stalled; None: steps are not watched."""
    spending: Spending | None = None
    """Keeps calls of agents within limits and budgets; None: calls are not limited."""
    folder_fault: Callable[[RunStart, bool], errors.Fault | None] | None = None
    """Returns the fault that parks a run whose working folder cannot be used here.

    If the flag is set, it also examines the disk, which may block: call it on a thread.
    """
    capabilities: Callable[[], Mapping[str, str | None]] = dict
    """Returns the capabilities that steps can need, by name, each with the reason why it is missing here, or None."""
    services: frozenset[str] = frozenset()  # Backends that are models behind HTTP, which need no workspace.
    observe: Callable[[str, str, float], None] | None = None
    """Records the kind, the status and the seconds of each performed attempt, except for operations that only wait."""

    def hiding_for(self, driver: ports.Driver, recipe: Mapping[str, plain.Json]) -> Equipment:
        """Return equipment that also masks the secrets that a recipe names."""
        if not _is_secretive(type(driver)):
            return self
        return self.hiding(cast(ports.SecretiveDialect, driver).secrets(recipe))

    def hiding(self, secrets: ports.Secrets) -> Equipment:
        """Return equipment that also masks further secrets."""
        values = {self.environ[name] for name in secrets.names if name in self.environ} | secrets.texts
        if short := self._too_short(secrets):
            _log.warning("secrets too short to be masked: %s", ", ".join(short))
        return dataclasses.replace(self, masker=self.masker.hiding(values)) if values else self

    def _too_short(self, secrets: ports.Secrets) -> list[str]:
        return sorted(name for name in secrets.names if 0 < len(self.environ.get(name, "")) < plain.SHORTEST_SECRET)


@functools.cache
def _is_secretive(driver: type[ports.Driver]) -> bool:
    # The check of an instance costs as much as a hundred calls.
    return issubclass(driver, ports.SecretiveDialect)


class Parked(BaseException):
    """Raised when a step cannot be performed now, so that its run waits for a person.

    Args:
        facts: Fields of the control line besides reason and error, e.g. `cut_seconds`.
    """

    def __init__(
        self, reason: str, error: errors.StepError, facts: Mapping[str, plain.Json] = MappingProxyType({})
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error
        self.facts = facts
