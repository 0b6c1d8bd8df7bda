"""Routes of gates: the inbox of open questions, and their answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from app.api import queries, refusals, request_models, responses, routers
from app.api.dependencies import AuthorDep, ServicesDep
from app.api.responses import as_json, declared
from app.services import gate_inbox, gates

router = routers.router(prefix="/api/gates", tags=["gates"])

GateId = Annotated[str, Path(description="Id of the gate.", examples=["20260210T143000Z-k3x9af.738619ff239d"])]
"""A gate's id in a path."""


class AnswerBody(BaseModel):
    """A decision at a gate."""

    model_config = request_models.strict({"decision": "approve", "message": "well done"})

    decision: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="One of the gate's options.")
    message: Annotated[str, Field(max_length=gates.MESSAGE_CHARACTERS)] = Field(
        "", description="Message with the answer; later steps can read it."
    )
    shown_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        None,
        description="Hash of the question that was shown; the answer is refused with `gate_lapsed` if the "
        "question has changed.",
    )

    def reply(self, idempotency_key: str | None) -> gates.Reply:
        """Return the reply from the body and its header."""
        return gates.Reply(**dict(self), idempotency_key=idempotency_key)


@router.get(
    "",
    summary="List open gates",
    responses=responses.page(list[gates.GateShown], meaning="A page of open gates, those of the oldest run first."),
)
async def list_gates(
    services: ServicesDep,
    request: Request,
    query: Annotated[queries.GatesQuery, Query()],
    if_none_match: responses.IfNoneMatch = None,
) -> Response:
    """List the open gates of all runs, including runs that are not loaded. Filters are combined with AND."""
    return await responses.paged(
        services, request, query, if_none_match, services.gates.page, lambda shown: gate_inbox.position(shown.gate)
    )


@router.get(
    "/{gate_id}",
    summary="Show a gate",
    responses=declared(gates.GateDetail, "gate_not_found", "journal_corrupt", meaning="The gate, open or decided."),
)
async def show_gate(services: ServicesDep, gate_id: GateId) -> Response:
    """Return a gate with the content to decide on in parts, its origin, and its answer, if any."""
    return as_json(await services.gates.detail(gate_id))


@router.post(
    "/{gate_id}",
    summary="Answer a gate",
    responses=declared(
        gates.GateShown,
        *refusals.WRITE,
        "unknown_decision",
        "gate_not_found",
        "gate_decided",
        "gate_lapsed",
        "approvals_need_keys.403",
        "approver_started",
        "already_voted",
        "not_recorded",
        "wrong_state",
        "journal_corrupt",
        meaning="The decided gate; the answer is on disk.",
    ),
)
async def answer_gate(
    services: ServicesDep,
    gate_id: GateId,
    body: AnswerBody,
    author: AuthorDep,
    idempotency_key: responses.IdempotencyKey = None,
) -> Response:
    """Answer a gate. The first answer counts, and a denial is final.

    If the run has `approvals`, each key has one vote; the gate stays open until enough agree.
    """
    return as_json(await services.gates.answer(gate_id, body.reply(idempotency_key), author))
