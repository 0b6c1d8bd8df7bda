"""Routes of issues: findings of runs and notes of people."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Header, Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from app import errors
from app.api import queries, refusals, request_models, responses, routers, scoping
from app.api.dependencies import AuthorDep, LimitsDep, ServicesDep
from app.api.responses import as_json, declared
from app.api.use_cases import Services
from app.domain import access, issues
from app.services import issue_texts
from app.services import issues as issue_services

router = routers.router(prefix="/api/issues", tags=["issues"])

IssueId = Annotated[str, Path(description="Id of the issue.", examples=["iss_5h2m9q0x7c1v8b3n"])]
"""An issue's id in a path."""

_ETAG = {"ETag": "Revision of the issue, for `If-Match`."}
_WRITTEN = responses.created(
    issues.IssueShown,
    *refusals.WRITE,
    "unknown_run",
    "unknown_session",
    "unknown_receipt",
    "session_mismatch",
    "issue_damaged",
    meaning="The issue; it is on disk.",
    repeated="An earlier request with this Idempotency-Key created the issue.",
    headers=_ETAG | {"Location": "Address of the issue."},
)


_Title = Annotated[str, Field(pattern=issue_texts.TITLE_PATTERN, max_length=issue_texts.TITLE_CHARACTERS)]
_Body = Annotated[str, Field(max_length=issue_texts.BODY_CHARACTERS)]
_ReceiptId = Annotated[str, Field(min_length=1, max_length=200)]


class IssueBody(BaseModel):
    """An issue created by hand."""

    model_config = request_models.strict({"title": "The lantern is lit again in scene 22", "kind": "continuity"})

    title: _Title = Field(description="Title, in one line.")
    body: _Body = Field("", description="Text of the issue.")
    kind: Annotated[str, Field(pattern=issue_texts.KIND_PATTERN)] = Field(
        "note", description="Kind of issue, as one lowercase word."
    )
    severity: issues.Severity | None = Field(None, description="Severity of the issue.")
    run_id: str | None = Field(None, description="Run that the issue is about.")
    session_id: str | None = Field(
        None, description="Work session of the issue; by default that of the run or of the receipts."
    )
    receipts: Annotated[list[_ReceiptId], Field(max_length=issue_services.RECEIPTS)] = Field(
        default_factory=list, description="Receipts that serve as evidence."
    )

    def issue(self, idempotency_key: str | None) -> issue_services.NewIssue:
        """Return the issue that the body and its header describe."""
        return issue_services.NewIssue(
            **(dict(self) | {"receipts": tuple(self.receipts)}), idempotency_key=idempotency_key
        )


class IssueEditBody(BaseModel):
    """Changes to an issue."""

    model_config = request_models.strict({"status": "closed", "note": "mended in the second draft", "revision": 1})

    title: _Title | None = Field(None, description="New title.")
    body: _Body | None = Field(None, description="New body.")
    severity: issues.Severity | None = Field(None, description="New severity.")
    status: Literal["open", "closed"] | None = Field(None, description="`closed` closes the issue; `open` reopens it.")
    note: Annotated[str, Field(min_length=1, max_length=issue_texts.NOTE_CHARACTERS)] | None = Field(
        None, description="Note to add after the earlier ones."
    )
    revision: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Expected revision; the change is refused with `issue_changed` if the issue has a different one.",
    )

    def edit(self, matched: int | None) -> issue_services.Edit:
        """Return the change from the body and its header.

        Raises:
            errors.RequestInvalid: they name different revisions.
        """
        return issue_services.Edit(**(dict(self) | {"revision": request_models.seen_revision(self.revision, matched)}))


@router.get(
    "",
    summary="List issues",
    responses=responses.page(list[issues.IssueSummary], meaning="A page of issues, newest first."),
)
async def list_issues(
    services: ServicesDep,
    request: Request,
    query: Annotated[queries.IssuesQuery, Query()],
    if_none_match: responses.IfNoneMatch = None,
) -> Response:
    """List issues, newest first. Filters are combined with AND."""
    return await responses.paged(
        services, request, query, if_none_match, services.issues.page, lambda issue: (issue.created_at, issue.issue_id)
    )


@router.post("", status_code=201, summary="Create an issue", responses=_WRITTEN)
async def add_issue(
    services: ServicesDep,
    body: IssueBody,
    author: AuthorDep,
    limits: LimitsDep,
    idempotency_key: responses.IdempotencyKey = None,
) -> Response:
    """Create an issue. The run, session and receipts that it names must exist and belong together."""
    new = body.issue(idempotency_key)
    if limits is not None:
        await _refuse_outside(services, limits, new)
    added = await services.issues.add(new, author)
    return _shown(added.issue, 200 if added.existed else 201, Location=f"/api/issues/{added.issue['issue_id']}")


@router.get(
    "/{issue_id}",
    summary="Show an issue",
    responses=declared(issues.IssueShown, "issue_not_found", "issue_damaged", meaning="The issue.", headers=_ETAG),
)
async def show_issue(services: ServicesDep, issue_id: IssueId) -> Response:
    """Return an issue with its notes."""
    return _shown(await services.issues.show(issue_id))


@router.patch(
    "/{issue_id}",
    summary="Change an issue",
    responses=declared(
        issues.IssueShown,
        *refusals.WRITE,
        "issue_not_found",
        "issue_changed",
        "issue_damaged",
        "too_many_notes",
        meaning="The issue as it is now; the change is on disk.",
        headers=_ETAG,
    ),
)
async def edit_issue(
    services: ServicesDep,
    issue_id: IssueId,
    body: IssueEditBody,
    author: AuthorDep,
    if_match: Annotated[
        str | None,
        Header(alias="If-Match", description="Expected ETag; a stale one is rejected with 409.", max_length=100),
    ] = None,
) -> Response:
    """Change the title, body or status, or add a note. With `revision` or `If-Match`, reject stale updates."""
    return _shown(await services.issues.edit(issue_id, body.edit(queries.revision(if_match)), author))


async def _refuse_outside(services: Services, limits: access.Scope, new: issue_services.NewIssue) -> None:
    """Refuse an issue that its limited caller could not see, or that names things outside of its scope."""
    if new.run_id is None:
        message = "is required: your key is limited to some runs, and sees only their issues"
        raise refusals.invalid([errors.Flaw(path="$.run_id", code="missing", message=message)])
    if not await services.runs.is_within(new.run_id, limits):
        raise issue_services.unknown("run", "run_id", new.run_id)
    for index, receipt_id in enumerate(new.receipts):
        try:
            await scoping.see_receipt(services, limits, {"receipt_id": receipt_id})
        except errors.NotFound as error:
            raise issue_services.unknown("receipt", f"receipts[{index}]", receipt_id) from error


def _shown(issue: issues.Issue, status: int = 200, **headers: str) -> Response:
    return as_json(dict(issue), status=status, headers={"ETag": f'"{issue["revision"]}"'} | headers)
