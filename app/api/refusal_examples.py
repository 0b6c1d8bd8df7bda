"""Examples of refusals: an error for each code, shown in the documents and used for the page of errors."""

from __future__ import annotations

from app import errors
from app.domain import plain

_RUN = "20260210T143000Z-k3x9af"
_GATE = f"{_RUN}.738619ff239d"
_ISSUE = "iss_5h2m9q0x7c1v8b3n"
_PLAN = "sp_5h2m9q0x7c1v8b3n"
_NEAREST = {"recipe_id": "creative_draft", "nearest": ["creative_draft_scene"]}
_NO_RECIPE = "there is no recipe 'creative_draft'; did you mean creative_draft_scene?"
_NOT_READY = "Claude Code cannot be used: it is not installed here."
_UNREADABLE = {
    "run_id": _RUN,
    "file": "start.json",
    "path": f"runs/{_RUN}/start.json",
    "errno": "EIO",
    "since": "2026-02-10T14:30:00.000Z",
    "next_try_at": "2026-02-10T14:30:04.000Z",
    "retry_after_seconds": 4,
}
_TRIGGER = "trg_5h2m9q0x7c1v8b3n"


def _invalid(code: str, path: str, message: str, **facts: plain.Json) -> errors.RequestInvalid:
    flaw = errors.Flaw(path=path, code=code, message=message)
    return errors.RequestInvalid(message, code=code, flaws=[flaw], detail=facts)


ERRORS: tuple[errors.ControlRoomError | errors.Fault, ...] = (
    # -- requests
    errors.RequestInvalid(
        "the body is not JSON: Expecting value (line 1, column 1)",
        code="malformed_body",
        flaws=[errors.Flaw(path="$", code="syntax", message="is not JSON: Expecting value (line 1, column 1)", line=1)],
    ),
    errors.RequestInvalid(
        "$.recip: is not known; did you mean recipe?",
        flaws=[errors.Flaw(path="$.recip", code="unknown_field", message="is not known; did you mean recipe?")],
    ),
    errors.TooLarge("the body is larger than 1048576 bytes", detail={"max_bytes": 1048576}),
    errors.TooLarge(
        "$.tasks: holds more than 5000 values",
        code="too_many_values",
        flaws=[errors.Flaw(path="$.tasks", code="too_many_values", message="holds more than 5000 values")],
    ),
    _invalid("bad_cursor", "query.cursor", "the cursor does not belong to this list; take it from a `Link` header"),
    # -- keys
    errors.Unauthenticated(
        "the key ada expired at 2026-02-10T14:30:00.000Z; ask an admin for another", code="key_expired"
    ),
    errors.Denied(
        "this needs the role approver, and the key ada has the role viewer; ask an admin for another key",
        detail={"needed": "approver", "role": "viewer"},
    ),
    errors.Denied(
        "this shows more than the runs that the key ada is limited to; ask an admin for another key",
        code="out_of_scope",
    ),
    errors.Conflict("there is a key ada already; rotate it, or revoke it first", code="key_exists"),
    errors.Conflict("there are 1000 keys already, which is the limit; revoke one", code="too_many_keys"),
    errors.Conflict(
        "bob cannot be the first key: it closes the service, and without CONTROL_ROOM_API_TOKEN only an admin's key"
        " without limits lets anyone manage keys then; add such a key first: control-room keys add NAME --role admin",
        code="admin_key_needed",
    ),
    errors.Conflict(
        "ada is the last key that can manage keys; add another admin first, or rotate this key", code="last_admin_key"
    ),
    errors.NotFound("there is no key 'ada'", code="key_not_found"),
    # -- recipes and their arguments
    errors.UnknownRecipe(_NO_RECIPE, detail=_NEAREST),
    errors.NotFound(_NO_RECIPE, code="recipe_not_found", detail=_NEAREST),
    errors.ArgsInvalid(
        "recipe creative_draft_scene needs scene_path, canon_paths",
        flaws=[
            errors.Flaw(path="$.args.scene_path", code="missing_arg", message="argument scene_path is required"),
            errors.Flaw(path="$.args.canon_paths", code="missing_arg", message="argument canon_paths is required"),
        ],
        detail={"missing": ["scene_path", "canon_paths"]},
    ),
    errors.RequestInvalid(
        "recipe creative_draft_scene does not take these options: $.options.fast is not known",
        code="options_invalid",
        flaws=[errors.Flaw(path="$.options.fast", code="unknown_field", message="is not known")],
    ),
    _invalid(
        "unknown_backend",
        "$.args.backend",
        "there is no backend 'claud'; did you mean claude-code?",
        backend="claud",
        backends=["claude-code", "scripted"],
    ),
    errors.RecipeInvalid(
        "recipe mine in mine.json cannot be started: $.phase_a[0].tool: there is no tool file_locater",
        flaws=[errors.Flaw(path="$.phase_a[0].tool", code="unknown_tool", message="there is no tool file_locater")],
    ),
    errors.NotReady(
        f"recipe rebase cannot run here: {_NOT_READY}",
        flaws=[errors.Flaw(path="$.args.backend", code="backend_not_ready", message=_NOT_READY)],
    ),
    _invalid(
        "inline_recipes_off",
        "$.recipe",
        "inline recipes are disabled; set CONTROL_ROOM_INLINE_RECIPES to allow them",
    ),
    _invalid("unknown_dialect", "$.dialect", "unknown dialect 'yaml'; dialects: control_room"),
    errors.Unroutable("No recipe has task patterns. To choose the recipe yourself, name it in recipe_id."),
    # -- runs
    _invalid(
        "working_dir_refused",
        "$.working_dir",
        "working_dir '/etc' is outside the project and the folders of CONTROL_ROOM_ALLOWED_ROOTS",
    ),
    _invalid("working_dir_missing", "$.working_dir", "working_dir 'chapters' is not a folder"),
    _invalid("unknown_parent", "$.parent_run_id", f"there is no run {_RUN}"),
    _invalid("depth_exceeded", "$.parent_run_id", "maximum run depth is 3; this run would be at depth 4"),
    errors.Conflict(
        f"run {_RUN} with the concurrency key 'deploy' must end first",
        code="concurrency_limit",
        detail={"key": "deploy", "limit": 1, "run_id": _RUN, "run_ids": [_RUN]},
    ),
    errors.Conflict(
        f"run {_RUN} of creative_draft_scene is not finished",
        code="recipe_busy",
        detail={"run_id": _RUN, "recipe_id": "creative_draft_scene"},
    ),
    errors.Conflict(
        f"run {_RUN} continues the conversation review, whose beginning is in other runs; a fork could not begin it"
        " from its journal. Start a new run, or fork the run that began the conversation",
        code="conversation_shared",
        detail={"agent_session_id": "review"},
    ),
    errors.Conflict(
        f"The conversation review is in use by {_RUN}, and is free once that has ended.",
        code="session_locked",
        detail={"agent_session_id": "review", "holder": _RUN},
    ),
    errors.Conflict(
        "The record of the conversation is damaged: sessions/agents/review/session.json: it is not a JSON object."
        " Repair or remove that file.",
        code="agent_session_damaged",
        detail={"file": "sessions/agents/review/session.json", "reason": "it is not a JSON object"},
    ),
    errors.NotFound("no run has used the conversation review", code="unknown_agent_session"),
    errors.Conflict(
        "retention/policy.json is not a retention policy ($.rules: must be a list of rules); set the policy anew, or"
        " remove the file",
        code="retention_damaged",
    ),
    errors.Conflict(
        "4 runs found, not 3 as expected; nothing was changed",
        code="bulk_count_differs",
        detail={"matched": 4, "expected": 3},
    ),
    errors.Conflict(
        "more than 1000 runs match; narrow the filter, and repeat the order for the rest",
        code="too_many_runs",
        detail={"most": 1000},
    ),
    errors.Conflict(
        f"the idempotency key belongs to another request, which made run {_RUN}",
        code="idempotency_conflict",
        detail={"run_id": _RUN},
    ),
    errors.NotFound(f"there is no run {_RUN}", code="run_not_found"),
    errors.WrongState(
        f"run {_RUN} is done; only a failed or cancelled run is resumed", detail={"run_id": _RUN, "status": "done"}
    ),
    errors.Conflict(f"run {_RUN} is being written by another process", code="run_busy"),
    errors.JournalCorrupt(
        f"run {_RUN}: steps.jsonl line 3 is not sealed to the line before it; nothing was deleted; "
        f"see what can be kept: control-room runs repair {_RUN}",
        detail={"run_id": _RUN, "file": "steps.jsonl", "line": 3, "reason": "is not sealed to the line before it"},
    ),
    _invalid(
        "unknown_step",
        "$.from",
        "the run has no finished step 'drafts' to go back to; its finished steps: discover, draft",
        steps=["discover", "draft"],
    ),
    _invalid(
        "recipe_differs",
        "$.recipe",
        "the argument scene_path changes the finished step 'draft', which a resume would keep; nothing was written. "
        "Perform it again with --from draft (`from` in the request), or fork the run with the same changes",
    ),
    _invalid(
        "resume_unchangeable", "$.args", "a run of conference cannot be resumed with changes; start another run instead"
    ),
    _invalid(
        "no_conversation", "$.conversation", f"run {_RUN} has no conversation to begin again; omit `conversation`"
    ),
    errors.NotFound(
        f"run {_RUN} has no slot 'drafts'; its slots: discovery, draft",
        code="slot_not_found",
        detail={"slots": ["discovery", "draft"]},
    ),
    errors.NotFound(f"no step 'draft' of run {_RUN} is being performed", code="step_not_open"),
    errors.NotFound("there is no log draft.1.reply.md", code="log_not_found"),
    errors.NotFound("there is no receipt rcpt_00000000000000000000", code="receipt_not_found"),
    # -- gates
    errors.NotFound(f"there is no gate '{_GATE}'", code="gate_not_found"),
    _invalid(
        "unknown_decision",
        "$.decision",
        "'yes' is not an option of this gate; options: approve, deny",
        options=["approve", "deny"],
    ),
    errors.Conflict(
        f"the gate {_GATE} is already decided: approve",
        code="gate_decided",
        detail={"gate": {"gate_id": _GATE, "status": "decided", "decision": "approve"}},
    ),
    errors.Conflict(f"the gate {_GATE} has lapsed: its question has changed", code="gate_lapsed"),
    errors.Conflict(
        "the gate 'ship' was denied, which is final: a resume cannot pass it; start a new run",
        code="gate_denied",
        key="ship",
        detail={"gate_id": _GATE, "decision": "deny", "by_default": False, "denied": True},
    ),
    errors.Conflict(
        "the gate 'ship' was decided before this change, and its approvals do not hold for it; ask again with "
        "--from ship (`from` in the request), or fork the run with the same changes",
        code="approval_outdated",
        key="ship",
    ),
    errors.Conflict(
        "its gates need 2 keys with the role approver, and there are none; names that callers claim do not count: "
        "add keys with control-room keys add",
        code="approvals_need_keys",
        detail={"needed": 2, "approvers": 0},
    ),
    errors.Denied(
        "this gate is decided by keys; a token, a claimed name or this machine's user does not count",
        code="approvals_need_keys",
    ),
    errors.Denied(
        "the key ada has started this run, or the run or plan above it; others decide at its gates",
        code="approver_started",
    ),
    errors.Conflict(
        "the key ada has voted approve at this gate; a vote cannot be changed",
        code="already_voted",
        detail={"decision": "approve"},
    ),
    errors.Conflict("the run came to rest before the delivery was written", code="not_recorded", key="ship"),
    # -- issues
    errors.NotFound(f"there is no issue '{_ISSUE}'", code="issue_not_found"),
    _invalid("unknown_run", "$.run_id", f"there is no run {_RUN}"),
    _invalid("unknown_session", "$.session_id", "there is no session 'book-one'"),
    _invalid("unknown_receipt", "$.receipts[0]", "there is no receipt 'rcpt_00000000000000000000'"),
    _invalid("session_mismatch", "$.receipts[0]", "belongs to the session 'book-two', not to 'book-one'"),
    errors.Conflict(
        f"the issue {_ISSUE} was changed meanwhile; its revision is now 3",
        code="issue_changed",
        detail={"issue": {"issue_id": _ISSUE, "status": "open", "revision": 3}},
    ),
    errors.Conflict(
        f"the file of the issue '{_ISSUE}' cannot be read; nothing was changed",
        code="issue_damaged",
        detail={"file": f"issues/{_ISSUE}.json"},
    ),
    errors.Conflict(f"the issue {_ISSUE} has 1000 notes", code="too_many_notes"),
    # -- budgets
    errors.Conflict(
        "the limit of budget drafts is $0.70, it is overdrawn by $0.07, and the call of the step 'polish' needs more;"
        " raise it to let the run continue: control-room budgets set drafts --max-cost N",
        code="budget_exhausted",
        key="polish",
    ),
    errors.NotFound("there is no budget 'drafts'; there are none", code="budget_not_found", detail={"budgets": []}),
    errors.RequestInvalid("there are 200 budgets already, which is the limit; remove one", code="too_many_budgets"),
    errors.Conflict(
        "budgets.json in the data directory is not JSON; fix it, or move it away",
        code="file_damaged",
        detail={"file": "budgets.json"},
    ),
    errors.Unavailable(
        "budgets.json cannot be read now: Input/output error", code="file_unreadable", detail={"file": "budgets.json"}
    ),
    # -- session plans
    errors.NotFound(f"there is no plan '{_PLAN}'", code="plan_not_found"),
    errors.NotFound(f"the plan {_PLAN} has no task 9", code="task_not_found", detail={"task": 9}),
    _invalid(
        "no_chief",
        "$.intent",
        "no agent with the archetype chief has the mode pipeline, so no agent can split an intent into tasks",
    ),
    errors.RequestInvalid(
        "$.tasks[0].deps[0]: these tasks wait for one another: 1 → 2 → 1",
        code="tasks_invalid",
        flaws=[
            errors.Flaw(
                path="$.tasks[0].deps[0]",
                code="dependency_cycle",
                message="these tasks wait for one another: 1 → 2 → 1",
            )
        ],
    ),
    _invalid("order_incomplete", "$.order", "the order must name every task once; missing: 3"),
    _invalid("order_unknown_task", "$.order[3]", "there is no task 9"),
    _invalid("order_repeats_task", "$.order[1]", "task 1 is named twice"),
    _invalid("order_breaks_dependency", "$.order[0]", "task 2 depends on 1, and cannot be placed before it"),
    errors.Conflict(
        f"the plan {_PLAN} was changed meanwhile; its revision is now 7",
        code="plan_changed",
        detail={"plan": {"session_id": _PLAN, "status": "running", "revision": 7}},
    ),
    errors.Conflict(
        f"the file of the plan cannot be trusted: sessions/{_PLAN}/plan.json: is not JSON; nothing was changed",
        code="plan_damaged",
        detail={"file": f"sessions/{_PLAN}/plan.json"},
    ),
    errors.Conflict("task 1 is done and can no longer be changed", code="task_begun", detail={"task": 1}),
    errors.Conflict("task 1 is needed by 2 and 3", code="task_needed", detail={"task": 1, "needed_by": [2, 3]}),
    errors.NotFound(f"the plan {_PLAN} has no proposal 9", code="proposal_not_found", detail={"proposal": 9}),
    errors.Conflict("proposal 1 is dismissed", code="proposal_decided", detail={"proposal": 1, "status": "dismissed"}),
    errors.Conflict(f"the plan {_PLAN} has 200 tasks, and cannot have more", code="too_many_tasks"),
    errors.Unavailable(f"the planner failed on {_PLAN}; see the log", code="planner_broken"),
    # -- triggers
    errors.NotFound(f"there is no trigger '{_TRIGGER}'", code="trigger_not_found"),
    errors.Conflict(f"the trigger {_TRIGGER} was changed meanwhile; its revision is now 3", code="trigger_changed"),
    errors.Conflict("there are 1000 triggers; remove one first", code="too_many_triggers"),
    errors.Unavailable("triggers do not work: KeyError('x'); restart the service", code="triggers_broken"),
    errors.NotFound("there is nothing at this address", code="hook_not_found"),
    errors.RequestInvalid("the delivery started no run; the history of the trigger says why", code="hook_refused"),
    errors.RequestInvalid("the delivery has no valid signature of the scheme github", code="signature_invalid"),
    # -- notifications
    errors.NotFound("there is no endpoint 'ep_5h2m9q0x7c1v8b3n'", code="endpoint_not_found"),
    errors.NotFound("there is no dead letter 'msg_5h2m9q0x7c1v8b3n'", code="message_not_found"),
    errors.Conflict("there are 100 endpoints; remove one first", code="too_many_endpoints"),
    errors.Unavailable("notifications do not work: KeyError('x'); restart the service", code="notifications_broken"),
    # -- the service
    errors.Unavailable("the service is stopping", code="stopping"),
    errors.Unavailable("s3://runs/blobs does not answer as it should (GenericError)", code="blobs_away"),
    errors.Unavailable("the service is starting", code="starting"),
    errors.Unavailable("new runs are refused: runs/.room could not be written: no space is left", code="disk_failing"),
    errors.WriteFailed(),
    errors.StorageFault(
        "the index sqlite:////srv/book/.control-room/index.db cannot be used: disk I/O error", detail={"file": "index"}
    ),
    errors.DatabaseAway(
        "the index postgresql://db/runs cannot be reached: timeout",
        detail={"file": "index"},
    ),
    errors.Unreadable(
        f"runs/{_RUN}/start.json cannot be read now: Input/output error; nothing was changed, and it is tried again",
        detail=_UNREADABLE,
    ),
)
