"""Routes that remove old runs: by an order, and by a policy that the service applies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator
from starlette.responses import Response

from app.api import refusals, request_models, responses, routers
from app.api.dependencies import AuthorDep, ServicesDep
from app.domain import retention
from app.services import retention as retention_services

router = routers.router(prefix="/api", tags=["runs"])

_Finished = Literal["done", "failed", "cancelled"]
_Amount = Annotated[int, Field(ge=0, le=2**53)] | None


class RuleBody(BaseModel):
    """A rule for removing finished runs: too old ones, and those that exceed the size together with newer ones."""

    model_config = request_models.strict(
        {"older_than_seconds": 2592000, "status": ["done"]}, {"keep_bytes": 10737418240, "labels": {"book": "one"}}
    )

    older_than_seconds: _Amount = Field(None, description="Age at which a run is removed, counted from its end.")
    keep_bytes: _Amount = Field(
        None, description="Maximum total size of these runs, in bytes; the newest runs are kept."
    )
    status: Annotated[list[_Finished], Field(min_length=1)] = Field(
        default=["done", "failed", "cancelled"], description="States of the runs."
    )
    recipe_id: Annotated[str, Field(max_length=128)] | None = Field(None, description="Only runs of this recipe.")
    labels: dict[request_models.LabelName, request_models.LabelValue] = Field(
        default_factory=dict, max_length=32, description="Only runs with all these labels."
    )

    @model_validator(mode="after")
    def _removes_something(self) -> RuleBody:
        if self.older_than_seconds is None and self.keep_bytes is None:
            raise ValueError("say what to remove: set `older_than_seconds` or `keep_bytes`")
        return self

    def rule(self) -> retention.Rule:
        """Return the rule."""
        return retention.Rule(
            older_than_seconds=self.older_than_seconds,
            keep_bytes=self.keep_bytes,
            status=tuple(dict.fromkeys(self.status)),
            recipe_id=self.recipe_id,
            labels=self.labels,
        )


class PruneBody(RuleBody):
    """An order to remove runs; by default it only lists them."""

    model_config = request_models.strict(
        {"older_than_seconds": 2592000, "status": ["done"]},
        {"older_than_seconds": 2592000, "status": ["done"], "dry_run": False, "expected": 0},
    )

    dry_run: bool = Field(True, description="Only report which runs would be removed.")
    expected: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Expected number of runs; a different number returns 409. Required to remove runs."
    )

    @model_validator(mode="after")
    def _was_counted(self) -> PruneBody:
        if not self.dry_run and self.expected is None:
            raise ValueError("`expected` is needed: count the runs with `dry_run` first")
        return self


class PolicyBody(BaseModel):
    """A policy that replaces the present one; without rules, no run is removed."""

    model_config = request_models.strict({"rules": [{"older_than_seconds": 2592000, "status": ["done"]}]})

    rules: Annotated[list[RuleBody], Field(max_length=retention_services.MOST_RULES)] = Field(
        description="The rules; each applies independently."
    )


@router.post(
    "/runs/prune",
    summary="Remove old runs",
    responses=responses.declared(retention_services.PruneReport, *refusals.WRITE, "bulk_count_differs"),
)
async def prune_runs(services: ServicesDep, body: PruneBody, author: AuthorDep) -> Response:
    """Remove finished runs by age, state, label and size, or only list them. Pinned and needed runs are kept."""
    report = await services.retention.prune(body.rule(), dry_run=body.dry_run, expected=body.expected, author=author)
    return responses.as_json(report)


@router.get(
    "/retention",
    summary="Show the retention policy",
    responses=responses.declared(retention.Policy, "retention_damaged"),
)
async def show_policy(services: ServicesDep) -> Response:
    """Return the rules that the service applies once an hour."""
    return responses.as_json(await services.retention.policy())


@router.put(
    "/retention",
    summary="Set the retention policy",
    responses=responses.declared(retention.Policy, *refusals.WRITE),
)
async def set_policy(services: ServicesDep, body: PolicyBody, author: AuthorDep) -> Response:
    """Replace the rules that the service applies once an hour."""
    policy = retention.Policy(rules=tuple(rule.rule() for rule in body.rules))
    return responses.as_json(await services.retention.set_policy(policy, author))
