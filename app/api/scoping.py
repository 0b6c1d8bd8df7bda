"""Scoping: checks a caller's rights before a route begins; the caller gets 404 for anything that it may not see."""

# Why: docs/decisions/0340.

from __future__ import annotations

import dataclasses
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.requests import HTTPConnection

from app import clock, errors
from app.api import callers, roles
from app.api.roles import Reach
from app.api.use_cases import Services
from app.domain import access, gates
from app.engine import conversation_claims
from app.services import requests
from app.services.plans import requests as plan_requests

if TYPE_CHECKING:
    from app.services import fork_requests

Sees: TypeAlias = Callable[[str, str], Awaitable[bool]]
"""Returns whether a caller sees a thing of a kind (`run`, `plan`, `issue`) by its id."""

_NAMING = {"run_id": "run", "run_ids": "run", "holder": "run", "session_id": "plan", "issue_id": "issue"}


def refuse_role(caller: access.Caller, needed: access.Role) -> None:
    """Refuse a caller without a role.

    Raises:
        errors.Denied: `role_missing`.
    """
    if not caller.role.includes(needed):
        message = f"this needs the role {needed}, and the key {caller.author.name} has the role {caller.role}"
        facts = {"needed": needed.value, "role": caller.role.value}
        raise errors.Denied(f"{message}; ask an admin for another key", detail=facts)


def out_of_scope(caller: access.Caller, what: str) -> errors.Denied:
    """Return the refusal of a request that reaches beyond the runs that a caller may see."""
    message = f"{what} the runs that the key {caller.author.name} is limited to; ask an admin for another key"
    return errors.Denied(message, code="out_of_scope")


async def check(services: Services | None, caller: access.Caller, need: roles.Need, place: Mapping[str, str]) -> None:
    """Refuse a request that its caller may not make.

    Args:
        place: Parameters of the path.

    Raises:
        errors.Denied: `role_missing`, `out_of_scope`.
        errors.NotFound: the resource in the path does not exist, or not for this caller.
    """
    if need.role is None:
        return
    refuse_role(caller, need.role)
    limits = caller.limits
    if limits is None:
        return
    if need.reach is Reach.EVERYTHING:
        raise out_of_scope(caller, "this reaches more than")
    if limits.recipes and need.reach in (Reach.ANY_RECIPE, Reach.PLAN_CHANGE):
        raise out_of_scope(caller, "this reaches recipes beyond")
    if services is not None and (check_scope := _SCOPE_CHECKS.get(need.reach)) is not None:
        await check_scope(services, limits, place)


async def scope_start(
    services: Services, caller: access.Caller, request: requests.StartRequest
) -> requests.StartRequest:
    """Return a request for a run, completed with the labels of its caller's scope if it names none.

    Raises:
        errors.Denied: `out_of_scope`, the run would be outside of the scope.
        errors.RequestInvalid: `unknown_parent`.
    """
    limits = caller.limits
    if limits is None:
        return request
    request = dataclasses.replace(request, labels=_labelled(limits, request.labels))
    # The router, or a recipe in the request, may lead to any recipe.
    names_none = request.recipe_id is None or request.recipe is not None
    if (limits.recipes and names_none) or not limits.covers(request.recipe_id or "", request.labels):
        raise out_of_scope(caller, "this run would not be among")
    await _below(services, limits, request.parent_run_id, request.runs_above)
    await refuse_conversation(services, caller, request.args)
    return await _superseding(services, caller, limits, request)


async def refuse_labels(
    services: Services, caller: access.Caller, run_id: str, changes: Mapping[str, str | None] | None
) -> None:
    """Refuse labels that would move a run, or a fork of it, out of the scope of its caller.

    Raises:
        errors.Denied: `out_of_scope`.
    """
    limits = caller.limits
    if limits is not None and changes and not await services.runs.is_within(run_id, limits, changes):
        raise out_of_scope(caller, "with these labels the run would not be among")


async def refuse_fork(
    services: Services,
    caller: access.Caller,
    run_id: str,
    request: fork_requests.ForkRequest,
) -> None:
    """Refuse a fork that would leave the scope of its caller, or reach beyond it.

    Raises:
        errors.Denied: `out_of_scope`.
        errors.NotFound: `unknown_agent_session`.
        errors.RequestInvalid: `unknown_parent`.
    """
    if caller.limits is not None:
        await refuse_labels(services, caller, run_id, request.labels)
        await refuse_conversation(services, caller, request.args)
        await _below(services, caller.limits, request.parent_run_id, request.runs_above)


async def refuse_conversation(services: Services, caller: access.Caller, args: Mapping[str, Any] | None) -> None:
    """Refuse arguments that continue a conversation last used by a run outside of the caller's scope.

    Raises:
        errors.NotFound: `unknown_agent_session`.
    """
    limits, named = caller.limits, (args or {}).get(conversation_claims.ARGUMENT)
    if limits is None or not isinstance(named, str):
        return
    newest = await services.conversation_service.newest(named)
    if newest is not None and not await services.runs.is_within(newest, limits):
        message = f"no run has used the conversation {named:.80}"
        raise errors.NotFound(message, code="unknown_agent_session")


async def scope_plan(services: Services, caller: access.Caller, new: plan_requests.NewPlan) -> plan_requests.NewPlan:
    """Return a requested plan, completed with the labels of its caller's scope if it names none.

    Raises:
        errors.Denied: `out_of_scope`, its runs may be outside of the scope.
        errors.NotFound: `unknown_agent_session`, a task would continue a conversation outside.
        errors.RequestInvalid: `unknown_parent`.
    """
    limits = caller.limits
    if limits is None:
        return new
    new = dataclasses.replace(new, labels=_labelled(limits, new.labels))
    if limits.recipes or not limits.covers("", new.labels):
        raise out_of_scope(caller, "runs of this plan would not be among")
    await _below(services, limits, new.parent_run_id, new.runs_above)
    for task in new.tasks:
        await refuse_conversation(services, caller, task.args)
    return new


async def disclosed(error: errors.ControlRoomError, sees: Sees) -> errors.ControlRoomError:
    """Return a refusal without the ids of runs, plans and issues outside of its caller's scope."""
    if not isinstance(error, errors.Conflict):
        return error
    message, facts = error.message, dict(error.detail)
    for fact, kind in _NAMING.items():
        given = facts.get(fact)
        named = [each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str)]
        outside = [each for each in named if not await sees(kind, each)]
        for each in outside:
            shown = f"{'an' if kind == 'issue' else 'a'} {kind} outside of your scope"
            message = re.sub(rf"(the )?({kind} )?{re.escape(each)}", shown, message)
        if outside:
            del facts[fact]
    return type(error)(message, code=error.code, key=error.key, detail=facts)


async def disclosed_at(connection: HTTPConnection, error: errors.ControlRoomError) -> errors.ControlRoomError:
    """Return a refusal as the caller of a request may see it."""
    services: Services | None = getattr(connection.app.state, "services", None)
    limits = limits_of(connection)
    if services is None or limits is None:
        return error

    async def sees(kind: str, named: str) -> bool:
        check_scope = {"run": _run, "plan": _plan, "issue": _issue}[kind]
        try:
            await check_scope(services, limits, dict.fromkeys(("run_id", "session_id", "issue_id"), named))
        except errors.ControlRoomError:
            return False
        return True

    return await disclosed(error, sees)


async def within(services: Services, limits: access.Scope | None, run_id: str | None, missing: errors.NotFound) -> None:
    """Raise an error if a run does not exist or is outside of a scope."""
    if limits is not None and (run_id is None or not await services.runs.is_within(run_id, limits)):
        raise missing


def limits_of(connection: HTTPConnection) -> access.Scope | None:
    """Return the scope of a request's caller; None if the caller is not limited."""
    return callers.caller_of(connection).limits


async def _below(services: Services, limits: access.Scope, parent_run_id: str | None, runs_above: int | None) -> None:
    if parent_run_id is None or await services.runs.is_within(parent_run_id, limits):
        return
    # With `runs_above` the parent may be a run of another project; one of this project pays for its children.
    if runs_above is None or await services.runs.is_within(parent_run_id, access.EVERYTHING):
        message = f"there is no run {parent_run_id!r:.80}"
        flaw = errors.Flaw(path="$.parent_run_id", code="unknown_parent", message=message)
        raise errors.RequestInvalid(message, code="unknown_parent", flaws=[flaw])


async def _superseding(
    services: Services, caller: access.Caller, limits: access.Scope, request: requests.StartRequest
) -> requests.StartRequest:
    wanted = request.concurrency
    if wanted is None or not wanted.policy.startswith("cancel_"):
        return request
    if not await services.runs.is_key_within(wanted.key, limits):
        raise out_of_scope(caller, f"the policy {wanted.policy} would cancel runs beyond")
    # Runs may start, be resumed or lose their labels after this check, so each cancelled run is checked again.
    return dataclasses.replace(request, concurrency=dataclasses.replace(wanted, within=limits))


def _labelled(limits: access.Scope, labels: Mapping[str, str]) -> dict[str, str]:
    own = {name: values[0] for name, values in limits.values().items() if len(values) == 1}
    return own | dict(labels)


async def _run(services: Services, limits: access.Scope, place: Mapping[str, str]) -> None:
    run_id = place["run_id"]
    await within(services, limits, run_id, errors.no_run(run_id, is_plan=clock.is_internal(run_id)))


async def _gate(services: Services, limits: access.Scope, place: Mapping[str, str]) -> None:
    gate_id = place["gate_id"]
    missing = errors.NotFound(f"there is no gate {gate_id!r:.120}", code="gate_not_found")
    await within(services, limits, gates.run_of(gate_id), missing)


async def _issue(services: Services, limits: access.Scope, place: Mapping[str, str]) -> None:
    issue_id = place["issue_id"]
    missing = errors.NotFound(f"there is no issue {issue_id!r:.120}", code="issue_not_found")
    issue: Mapping[str, Any] = await services.issues.show(issue_id)
    await within(services, limits, issue.get("run_id"), missing)


async def see_receipt(services: Services, limits: access.Scope, place: Mapping[str, str]) -> None:
    """Refuse the receipt of a run outside of a scope.

    Raises:
        errors.NotFound: `receipt_not_found`, as for one that does not exist.
    """
    receipt_id = place["receipt_id"]
    facts, message = {"receipt_id": receipt_id[:80]}, f"there is no receipt {receipt_id!r:.80}"
    missing = errors.NotFound(message, code="receipt_not_found", detail=facts)
    receipt: Mapping[str, Any] = await services.runs.receipt(receipt_id)
    await within(services, limits, receipt.get("run_id"), missing)


async def _plan(services: Services, limits: access.Scope, place: Mapping[str, str]) -> None:
    session_id = place["session_id"]
    if not (await services.plans.show(session_id)).is_within(limits):
        raise errors.NotFound(f"there is no plan {session_id!r:.80}", code="plan_not_found")


_SCOPE_CHECKS = {
    Reach.RUN: _run,
    Reach.GATE: _gate,
    Reach.ISSUE: _issue,
    Reach.RECEIPT: see_receipt,
    Reach.PLAN: _plan,
    Reach.PLAN_CHANGE: _plan,
}
