"""Search attributes: the attributes by which the server finds the workflows of runs; part of each run's workflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from app.domain import runs

RUN = SearchAttributeKey.for_keyword("ControlRoomRun")  # Id of the run.
RECIPE = SearchAttributeKey.for_keyword("ControlRoomRecipe")  # Id of the run's recipe.
STATUS = SearchAttributeKey.for_keyword("ControlRoomStatus")  # State of the run.
LABELS = SearchAttributeKey.for_keyword_list("ControlRoomLabels")  # Labels of the run, each as `name=text`.
KEYS: tuple[SearchAttributeKey[Any], ...] = (RUN, RECIPE, STATUS, LABELS)  # All of them.

_LONGEST = 200
_LABELS_BYTES = 1500
# The server accepts 255 characters in a keyword and 2 kB in a value, and fails workflow tasks beyond that.


def of(start: runs.RunStart) -> dict[str, Any]:
    """Return the attributes by which a run is found, as facts for its workflow."""
    return {"run": start.run_id, "recipe": start.recipe_id[:_LONGEST], "labels": _labels(start.labels)}


def type_name(key: SearchAttributeKey[Any]) -> str:
    """Return the type of an attribute in the form of Temporal's command line."""
    return "KeywordList" if key is LABELS else "Keyword"


def _labels(labels: Mapping[str, str]) -> list[str]:
    kept: list[str] = []
    for name, text in sorted(labels.items()):
        kept.append(f"{name}={text}"[:_LONGEST])
        if sum(len(each.encode()) + 4 for each in kept) > _LABELS_BYTES:
            return kept[:-1]
    return kept


class Shown:
    """The attributes that the server shows for one run."""

    def __init__(self) -> None:
        self._facts: Mapping[str, Any] | None = None
        self._shown: Sequence[Any] = ()

    def note(self, facts: Mapping[str, Any]) -> None:
        """Keep the facts from the journal; without attributes none are shown, since the server may not know them."""
        self._facts = facts.get("attributes", self._facts)

    def show(self, status: str) -> None:
        """Show the run in a state, unless it is already shown in that state."""
        if self._facts is None:
            return
        run_id, recipe_id, labels = (self._facts[name] for name in ("run", "recipe", "labels"))
        wanted = (run_id, recipe_id, status, labels)
        if wanted == self._shown:
            return
        self._shown = wanted
        workflow.upsert_search_attributes(
            [RUN.value_set(run_id), RECIPE.value_set(recipe_id), STATUS.value_set(status), LABELS.value_set(labels)]
        )
