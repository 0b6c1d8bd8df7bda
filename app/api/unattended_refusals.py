"""Refusals of what works without a person: an example of each error of triggers and notifications."""

from __future__ import annotations

from app import errors

_TRIGGER = "trg_5h2m9q0x7c1v8b3n"

ERRORS: tuple[errors.ControlRoomError, ...] = (
    # -- budgets
    errors.NotFound("there is no budget 'drafts'; there are none", code="budget_not_found", detail={"budgets": []}),
    errors.RequestInvalid("there are 200 budgets already, which is the limit; remove one", code="too_many_budgets"),
    errors.Conflict(
        "budgets.json in the data directory is not JSON; mend it, or move it away",
        code="file_damaged",
        detail={"file": "budgets.json"},
    ),
    errors.Unavailable(
        "budgets.json cannot be read now: Input/output error", code="file_unreadable", detail={"file": "budgets.json"}
    ),
    # -- triggers
    errors.NotFound(f"there is no trigger '{_TRIGGER}'", code="trigger_not_found"),
    errors.Conflict(f"the trigger {_TRIGGER} was changed meanwhile; its revision is now 3", code="trigger_changed"),
    errors.Conflict("there are 1000 triggers; remove one first", code="too_many_triggers"),
    errors.Unavailable("triggers do not work: KeyError('x'); restart the service", code="triggers_broken"),
    errors.NotFound("there is nothing at this address", code="hook_not_found"),
    errors.RequestInvalid("the delivery started no run; the history of the trigger says why", code="hook_refused"),
    errors.RequestInvalid(
        "the delivery has no valid signature of the scheme github, or its timestamp is too old",
        code="signature_invalid",
    ),
    # -- notifications
    errors.NotFound("there is no endpoint 'ep_5h2m9q0x7c1v8b3n'", code="endpoint_not_found"),
    errors.NotFound("there is no dead letter 'msg_5h2m9q0x7c1v8b3n'", code="message_not_found"),
    errors.Conflict("there are 100 endpoints; remove one first", code="too_many_endpoints"),
    errors.Unavailable("notifications do not work: KeyError('x'); restart the service", code="notifications_broken"),
)
"""An error for each code."""
