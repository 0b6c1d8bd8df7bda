"""Search attributes: by which runs are found among the workflows of the server; part of each run's workflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from app.domain import runs

RUN = SearchAttributeKey.for_keyword("ControlRoomRun")  # Id of the run.
RECIPE = SearchAttributeKey.for_keyword("ControlRoomRecipe")  # Id of its recipe.
STATUS = SearchAttributeKey.for_keyword("ControlRoomStatus")  # Its state.
LABELS = SearchAttributeKey.for_keyword_list("ControlRoomLabels")  # Its labels, each as `name=text`.
KEYS: tuple[SearchAttributeKey[Any], ...] = (RUN, RECIPE, STATUS, LABELS)  # All of them.

_LONGEST = 200
_LABELS_BYTES = 1500
# The server accepts 255 characters a keyword and 2 kB a value, and fails workflow tasks beyond that.


def of(start: runs.RunStart) -> dict[str, Any]:
    """Return what a run is found by, as facts for its workflow."""
    return {"run": start.run_id, "recipe": start.recipe_id[:_LONGEST], "labels": _labels(start.labels)}


def type_name(key: SearchAttributeKey[Any]) -> str:
    """Return the type of an attribute as the command line of Temporal names it."""
    return "KeywordList" if key is LABELS else "Keyword"


def _labels(labels: Mapping[str, str]) -> list[str]:
    kept: list[str] = []
    for name, text in sorted(labels.items()):
        kept.append(f"{name}={text}"[:_LONGEST])
        if sum(len(each.encode()) + 4 for each in kept) > _LABELS_BYTES:
            return kept[:-1]
    return kept


class Shown:
    """What the server shows of one run."""

    def __init__(self) -> None:
        self._facts: Mapping[str, Any] | None = None
        self._shown: Sequence[Any] = ()

    def note(self, facts: Mapping[str, Any]) -> None:
        """Take what the journal says; without attributes nothing is shown, since the server may not know them."""
        self._facts = facts.get("attributes", self._facts)

    def show(self, status: str) -> None:
        """Show the run in a state, unless that is shown."""
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
