"""Refusals: every code that a client can be told, with its status and an example, as routes declare them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from app import errors
from app.api import plan_problem_codes, problems

Responses: TypeAlias = dict[int | str, dict[str, Any]]

_RUN = "20260210T143000Z-k3x9af"
_GATE = f"{_RUN}.738619ff239d"
_ISSUE = "iss_5h2m9q0x7c1v8b3n"

EXAMPLES: Mapping[str, problems.Problem] = {
    example.code: example
    for example in (
        problems.Problem(
            status=400,
            code="malformed_body",
            title="The request is not valid.",
            detail="the body is not JSON: Expecting value (line 1, column 1)",
            flaws=[errors.Flaw(path="$", code="syntax", message="is not JSON: Expecting value", line=1)],
        ),
        problems.Problem(
            status=400,
            code="request_invalid",
            title="The request is not valid.",
            detail="$.recipe: is not known; did you mean recipe_id?",
            flaws=[errors.Flaw(path="$.recip", code="unknown_field", message="is not known; did you mean recipe?")],
        ),
        problems.Problem(
            status=400,
            code="unknown_recipe",
            title="There is no such recipe.",
            detail="there is no recipe 'creative_draft'; the nearest are creative_draft_scene",
            facts={"recipe_id": "creative_draft", "nearest": ["creative_draft_scene"]},
        ),
        problems.Problem(
            status=400,
            code="args_invalid",
            title="The arguments do not fit the recipe.",
            detail="recipe creative_draft_scene needs scene_path, canon_paths",
            flaws=[
                errors.Flaw(path="$.args.scene_path", code="missing_arg", message="argument scene_path is required"),
                errors.Flaw(path="$.args.canon_paths", code="missing_arg", message="argument canon_paths is required"),
            ],
            facts={"missing": ["scene_path", "canon_paths"]},
        ),
        problems.Problem(
            status=400,
            code="recipe_invalid",
            title="The recipe is not valid.",
            detail="recipe mine in mine.json cannot be started: $.phase_a[0].tool: there is no tool file_locater",
            flaws=[errors.Flaw(path="$.phase_a[0].tool", code="unknown_tool", message="there is no tool file_locater")],
        ),
        problems.Problem(
            status=409,
            code="backend_not_ready",
            title="A backend or program that the run needs cannot work here.",
            detail="recipe rebase cannot run here: Claude Code cannot be used: it is not installed here.",
            flaws=[
                errors.Flaw(
                    path="$.args.backend",
                    code="backend_not_ready",
                    message="Claude Code cannot be used: it is not installed here.",
                )
            ],
        ),
        problems.Problem(
            status=400,
            code="working_dir_refused",
            title="The request is not valid.",
            detail="working_dir '/etc' lies outside of the project and the folders of CONTROL_ROOM_ALLOWED_ROOTS",
        ),
        problems.Problem(
            status=400,
            code="working_dir_missing",
            title="The request is not valid.",
            detail="working_dir 'chapters' is no folder",
        ),
        problems.Problem(
            status=400,
            code="unknown_parent",
            title="The request is not valid.",
            detail=f"there is no run {_RUN}",
        ),
        problems.Problem(
            status=400,
            code="depth_exceeded",
            title="The request is not valid.",
            detail="runs may start runs 3 deep; this one would be 4 deep",
        ),
        problems.Problem(
            status=400,
            code="inline_recipes_off",
            title="The request is not valid.",
            detail="requests may not bring their own recipe; CONTROL_ROOM_INLINE_RECIPES allows it",
        ),
        problems.Problem(
            status=400,
            code="unknown_dialect",
            title="The request is not valid.",
            detail="there is no dialect 'yaml'; there are control_room",
        ),
        problems.Problem(
            status=400,
            code="bad_cursor",
            title="The request is not valid.",
            detail="the cursor is not one of this list",
        ),
        problems.Problem(
            status=400,
            code="unknown_step",
            title="The request is not valid.",
            detail="the run has no finished step 'drafts' to go back to",
            facts={"steps": ["discover", "draft"]},
        ),
        problems.Problem(
            status=400,
            code="recipe_differs",
            title="The request is not valid.",
            detail="the steps that the run keeps do not fit: draft was recorded with another operation",
        ),
        problems.Problem(
            status=400,
            code="resume_unchangeable",
            title="The request is not valid.",
            detail="a run of conference goes on as it was asked for; to ask for something else, start another one",
        ),
        problems.Problem(
            status=400,
            code="no_conversation",
            title="The request is not valid.",
            detail="run 20260210T143000Z-k3x9p2 speaks in no conversation that could be begun again; leave"
            " `conversation` out",
        ),
        problems.Problem(
            status=400,
            code="unknown_decision",
            title="The request is not valid.",
            detail="'yes' is none of the gate's options: approve, deny",
            flaws=[
                errors.Flaw(
                    path="$.decision",
                    code="unknown_decision",
                    message="'yes' is none of the gate's options: approve, deny",
                )
            ],
            facts={"options": ["approve", "deny"]},
        ),
        problems.Problem(
            status=400,
            code="unknown_run",
            title="The request is not valid.",
            detail=f"there is no run {_RUN}",
        ),
        problems.Problem(
            status=400,
            code="unknown_session",
            title="The request is not valid.",
            detail="there is no session 'book-one'",
        ),
        problems.Problem(
            status=400,
            code="unknown_receipt",
            title="The request is not valid.",
            detail="there is no receipt 'rcpt_00000000000000000000'",
        ),
        problems.Problem(
            status=400,
            code="session_mismatch",
            title="The request is not valid.",
            detail="$.receipts[0] belongs to the session 'book-two', not to 'book-one'",
        ),
        problems.of_status(400, "Host example.org is not served", code="unknown_host"),
        problems.of_status(401, "the header `Authorization: Bearer TOKEN` is missing or wrong"),
        problems.of_status(403, "Origin https://example.org may not call", code="foreign_origin"),
        problems.Problem(
            status=404, code="run_not_found", title="There is no such thing.", detail=f"there is no run {_RUN}"
        ),
        problems.Problem(
            status=404,
            code="slot_not_found",
            title="There is no such thing.",
            detail=f"run {_RUN} has no slot 'drafts'; there are discovery, draft",
            facts={"slots": ["discovery", "draft"]},
        ),
        problems.Problem(
            status=404, code="log_not_found", title="There is no such thing.", detail="there is no log draft.1.reply.md"
        ),
        problems.Problem(
            status=404,
            code="receipt_not_found",
            title="There is no such thing.",
            detail="there is no receipt rcpt_00000000000000000000",
        ),
        problems.Problem(
            status=404,
            code="recipe_not_found",
            title="There is no such thing.",
            detail="there is no recipe 'creative_draft'; the nearest are creative_draft_scene",
            facts={"recipe_id": "creative_draft", "nearest": ["creative_draft_scene"]},
        ),
        problems.Problem(
            status=404,
            code="gate_not_found",
            title="There is no such thing.",
            detail=f"there is no gate '{_GATE}'",
        ),
        problems.Problem(
            status=404,
            code="issue_not_found",
            title="There is no such thing.",
            detail=f"there is no issue '{_ISSUE}'",
        ),
        problems.Problem(
            status=409,
            code="issue_changed",
            title="The request does not fit the present state.",
            detail=f"the issue {_ISSUE} has been changed meanwhile: its revision is 3",
            facts={"issue": {"issue_id": _ISSUE, "status": "open", "revision": 3}},
        ),
        problems.Problem(
            status=409,
            code="issue_damaged",
            title="The request does not fit the present state.",
            detail=f"the file of the issue '{_ISSUE}' cannot be read; nothing was changed",
            facts={"file": f"issues/{_ISSUE}.json"},
        ),
        problems.Problem(
            status=409,
            code="too_many_notes",
            title="The request does not fit the present state.",
            detail=f"the issue {_ISSUE} has 1000 notes",
        ),
        problems.Problem(
            status=409,
            code="gate_decided",
            title="The request does not fit the present state.",
            detail=f"the gate {_GATE} is decided already: approve",
            facts={"gate": {"gate_id": _GATE, "status": "decided", "decision": "approve"}},
        ),
        problems.Problem(
            status=409,
            code="gate_lapsed",
            title="The request does not fit the present state.",
            detail=f"the gate {_GATE} has lapsed: something else is shown now",
        ),
        problems.Problem(
            status=409,
            code="gate_denied",
            title="The request does not fit the present state.",
            detail="the gate 'ship' was denied, which is final: no resume goes past it; start a new run",
            facts={"gate_id": _GATE, "decision": "deny", "by_default": False, "denied": True, "key": "ship"},
        ),
        problems.Problem(
            status=409,
            code="not_recorded",
            title="The request does not fit the present state.",
            detail="the run came to rest before the answer was written",
            facts={"key": "ship"},
        ),
        problems.Problem(
            status=409,
            code="wrong_state",
            title="It is not in a state that allows this.",
            detail=f"run {_RUN} is done",
            facts={"run_id": _RUN, "status": "done"},
        ),
        problems.Problem(
            status=409,
            code="recipe_busy",
            title="The request does not fit the present state.",
            detail=f"recipe creative_draft_scene is running already: {_RUN}",
            facts={"run_id": _RUN},
        ),
        problems.Problem(
            status=409,
            code="idempotency_conflict",
            title="The request does not fit the present state.",
            detail="this Idempotency-Key was used with another body",
            facts={"run_id": _RUN},
        ),
        problems.Problem(
            status=409,
            code="run_busy",
            title="The request does not fit the present state.",
            detail=f"another process writes run {_RUN}",
        ),
        problems.Problem(
            status=409,
            code="journal_corrupt",
            title="A journal is damaged; nothing was deleted.",
            detail="steps.jsonl line 3 does not follow the one before",
            facts={"file": "steps.jsonl", "line": 3},
        ),
        problems.Problem(
            status=413,
            code="too_large",
            title="The input is too large.",
            detail="the body is larger than 1048576 bytes",
            facts={"max_bytes": 1048576},
        ),
        problems.of_status(415, "the body must be JSON in UTF-8 with Content-Type: application/json"),
        problems.Problem(
            status=422,
            code="unroutable",
            title="No recipe fits the description.",
            detail="no recipe's patterns match the description",
        ),
        problems.Problem(
            status=500,
            code="internal_error",
            title="Something went wrong in the service.",
            detail="the service's log tells more under this incident",
            facts={"incident_id": "inc_5h2m9q0x7c1v8b3n"},
        ),
        problems.Problem(
            status=503,
            code="stopping",
            title="The service cannot answer this now.",
            detail="the service is stopping",
        ),
        problems.Problem(
            status=503,
            code="starting",
            title="The service cannot answer this now.",
            detail="the service is starting",
        ),
        problems.Problem(
            status=503,
            code="unreadable",
            title="A file cannot be read now; nothing was changed, and it is read again.",
            detail=f"runs/{_RUN}/start.json cannot be read now: Input/output error; nothing was changed, and it is"
            " tried again",
            facts={
                "run_id": _RUN,
                "file": "start.json",
                "path": f"runs/{_RUN}/start.json",
                "errno": "EIO",
                "since": "2026-02-10T14:30:00.000Z",
                "next_try_at": "2026-02-10T14:30:04.000Z",
                "retry_after_seconds": 4,
            },
        ),
        problems.Problem(
            status=503,
            code="disk_failing",
            title="The service cannot answer this now.",
            detail="new runs are refused: the disk is full or failing",
        ),
        problems.Problem(
            status=507,
            code="no_room",
            title="The data directory cannot take new runs: its disk is full or failing.",
            detail="No space left on device",
        ),
        *plan_problem_codes.EXAMPLES,
    )
}
"""An example of each problem by its code."""

ALWAYS = ("unknown_host", "unauthorized", "foreign_origin", "internal_error", "stopping", "unreadable")
"""What any address can answer."""

BODY = ("malformed_body", "request_invalid", "too_large", "unsupported_media_type")
"""What any address that takes a body can answer."""


def documented(codes: Iterable[str]) -> Responses:
    """Return what a route declares for the problems that it can answer with."""
    responses: Responses = {}
    for code in dict.fromkeys((*codes, *ALWAYS)):
        example = EXAMPLES[code]
        content = responses.setdefault(example.status, _response(example.status))["content"]
        content[problems.MEDIA_TYPE]["examples"][code] = {"$ref": f"#/components/examples/{code}"}
    return responses


def components() -> dict[str, Any]:
    """Return the examples that the declarations refer to."""
    return {code: {"summary": example.title, "value": example.to_json()} for code, example in EXAMPLES.items()}


def _response(status: int) -> dict[str, Any]:
    described = problems.of_status(status, "").title
    reference = {"$ref": "#/components/schemas/Problem"}
    return {"description": described, "content": {problems.MEDIA_TYPE: {"schema": reference, "examples": {}}}}
