"""The route of orders to many runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from app import errors
from app.api import queries, refusals, request_models, responses, routers, scoping
from app.api.dependencies import AuthorDep, LimitsDep, ServicesDep
from app.domain import plain, shapes, states
from app.engine import run_engine
from app.services import bulk

router = routers.router(prefix="/api/runs", tags=["runs"])

_RunId = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00]*$")]


class BulkBody(BaseModel):
    """An order to many runs: named ones, or those that match a filter, with the number that you have seen."""

    model_config = request_models.strict(
        {"action": "cancel", "run_ids": ["20260210T143000Z-k3x9af"]},
        {"action": "delete", "filter": {"status": ["failed"], "recipe_id": "draft"}, "dry_run": True},
        {"action": "delete", "filter": {"status": ["failed"], "recipe_id": "draft"}, "expected": 3},
        {"action": "label", "run_ids": ["20260210T143000Z-k3x9af"], "labels": {"book": "one"}},
    )

    action: bulk.Action = Field(description="The action.")
    run_ids: Annotated[list[_RunId], Field(min_length=1, max_length=bulk.MOST_RUNS)] | None = Field(
        None, description="Ids of the runs."
    )
    filter: queries.RunFilters | None = Field(
        None, description="Filter that selects the runs, with the fields of the list of runs."
    )
    expected: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Expected number of runs; a different number returns 409. Required with `filter`."
    )
    dry_run: bool = Field(False, description="Only count the runs.")
    labels: request_models.Labelling = Field(default_factory=dict)
    pinned: request_models.Pinning = None

    @model_validator(mode="after")
    def _runs_are_chosen(self) -> BulkBody:
        if (self.run_ids is None) == (self.filter is None):
            raise ValueError("name the runs in `run_ids`, or choose them by `filter`")
        if self.filter is not None and self.expected is None and not self.dry_run:
            raise ValueError("`filter` needs `expected`: count the runs with `dry_run` first")
        if (self.action == "label") != bool(self.labels or self.pinned is not None):
            raise ValueError("`label`, and no other action, needs `labels` or `pinned`")
        return self

    def order(self) -> bulk.BulkOrder:
        """Return the order."""
        return bulk.BulkOrder(
            action=self.action,
            run_ids=None if self.run_ids is None else tuple(self.run_ids),
            filter=None if self.filter is None else self.filter.runs(),
            expected=self.expected,
            dry_run=self.dry_run,
            marks=run_engine.Marks(labels=self.labels, pinned=self.pinned),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkDone(shapes.Shape):
    """A run that accepted the order."""

    run_id: shapes.RunId  # The run.
    status: states.RunState | None  # State of the run afterwards; null if it was deleted.


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRefused(shapes.Shape):
    """A run that refused the order."""

    run_id: str  # The run.
    problem: Mapping[str, plain.Json]  # Reason, as a problem document.


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAnswer(shapes.Shape):
    """Result of an order to many runs."""

    matched: int  # Number of runs that the order concerns.
    done: Sequence[BulkDone]  # Runs that accepted the order.
    refused: Sequence[BulkRefused]  # Runs that refused the order.


@router.post(
    "/bulk",
    summary="Cancel, pause, continue, label or delete many runs",
    responses=responses.declared(BulkAnswer, *refusals.WRITE, "bulk_count_differs", "too_many_runs"),
)
async def order_many(
    services: ServicesDep, request: Request, body: BulkBody, author: AuthorDep, limits: LimitsDep
) -> Response:
    """Give one order to many runs. Each accepts or refuses it on its own; the answer lists both."""
    outcome = await services.bulk.give(dataclasses.replace(body.order(), scope=limits), author)
    answer = BulkAnswer(
        matched=outcome.matched,
        done=[BulkDone(run_id=run_id, status=status) for run_id, status in outcome.done],
        refused=[
            BulkRefused(run_id=run_id, problem=await _problem(request, error)) for run_id, error in outcome.refused
        ],
    )
    return responses.as_json(answer)


async def _problem(request: Request, error: errors.ControlRoomError | errors.Fault) -> Mapping[str, plain.Json]:
    shown = await scoping.disclosed_at(request, error) if isinstance(error, errors.ControlRoomError) else error
    found = refusals.problem(shown)
    if found is None:
        raise error
    return found.to_json()
