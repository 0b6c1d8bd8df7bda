"""Reviews: choose reviewers of finished tasks, prepare their texts, and apply changes that the chief proposes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from app import errors
from app.domain import library, plain, plan_files, plans, task_reviews, views
from app.flows import review
from app.flows.session_plan import transitions
from app.services.plans import edits, requests, run_outputs, tasks
from app.services.plans.making import Maker
from app.services.plans.repository import PlanRepository
from app.services.recipe_versions import RecipeVersion
from app.services.recipes import Catalogue
from app.services.requests import StartRequest
from app.services.runs import Runs

OUTPUTS = 20  # Most outputs of a run that a reviewer is shown.

OUTPUT_CHARACTERS = 60_000
"""Most characters shown of an output that is not in a file, before the chief's tier cuts further."""

_DESCRIPTION_CHARACTERS = 120


class Reviews:
    """Has finished tasks reviewed in runs of their own, and applies changes that the chief proposes."""

    def __init__(
        self,
        *,
        runs: Runs,
        outputs: run_outputs.RunOutputs,
        library: Callable[[], library.Library],
        catalogue: Catalogue,
        repository: PlanRepository,
        maker: Maker,
    ) -> None:
        self._runs = runs
        self._outputs = outputs
        self._library = library
        self._catalogue = catalogue
        self._repository = repository
        self._maker = maker

    def announced(self, plan: plans.Plan) -> plans.Plan:
        """Return a plan that names the reviewer of its tasks."""
        in_words = tuple(task.id for task in plan.tasks if plan.reviews(task))
        if not in_words:
            return dataclasses.replace(plan, reviewer=None)
        chief, why = review.judge(self._library()), self._why_person()
        by = plans.BY_CHIEF if why is None else task_reviews.BY_PERSON
        agent_id = chief.id if chief is not None and why is None else None
        reviewer = task_reviews.Reviewer(by=by, agent_id=agent_id, why=why, tasks=in_words)
        return dataclasses.replace(plan, reviewer=reviewer)

    async def start(self, plan: plans.Plan) -> str:
        """Return the run that reviews the one task of a plan; after a crash, return the same run.

        Raises:
            errors.ControlRoomError: it cannot be started.
        """
        task, why = plan.tasks[0], self._why_person()
        known = await self._repository.find(plan.session_id)
        args = {
            "task": task.id,
            "description": tasks.text(task),
            "dod": task.dod,
            "run_id": task.run_id,
            "person": why,
            "tasks": [_listed(each) for each in known.tasks] if known is not None else [],
            **await self._work(task.run_id or ""),
        }
        number = 1 if task.review is None else task.review.number
        asked = StartRequest(
            recipe_id=review.RECIPE_ID,
            description=f"Review task {task.id}: {plain.preview(task.description)}",
            args=args,
            session_plan_task_id=task.id,
            idempotency_key=f"plan:{plan.session_id}:{task.id}:{task.attempt}:review:{number}",
        )
        return (await self._runs.start(tasks.of_plan(plan, asked), self._version(is_judged=why is None))).run_id

    async def read(self, session_id: str, run_id: str) -> dict[str, plain.Json]:
        """Return the decision of a review, `{"review", "proposals"}`; impossible proposals are marked as refused.

        Raises:
            errors.InputRefused: its run has left no verdict.
        """
        try:
            view = await self._runs.reader.view(run_id)
            result: dict[str, Any] = json.loads((await self._runs.reader.slot(run_id, review.SLOT))["text"])
            verdict = task_reviews.Verdict(result["verdict"])
        except (errors.ControlRoomError, ValueError, LookupError, TypeError) as error:
            message = f"the review {run_id} has left no verdict: {error!s:.300}"
            raise errors.InputRefused(message, code="review_unusable", detail={"run_id": run_id}) from error
        proposals = [plan_files.proposals([{**each, "id": 1, "after_task": 1}])[0] for each in result["proposals"]]
        decided = task_reviews.Review(
            status=task_reviews.ReviewState.DONE,
            run_id=run_id,
            verdict=verdict,
            usage=view.usage.to_json(),
            **{name: result[name] for name in ("by", "why", "evidence")},
        )
        # The present plan, since tasks may have changed while the chief worked.
        known = await self._repository.find(session_id)
        judged = [] if known is None else await self._judged(_after(known, run_id, verdict), proposals)
        return {"review": decided.to_json(), "proposals": [each.to_json() for each in judged]}

    async def accepted(self, plan: plans.Plan, proposal_id: int, at: str) -> plans.Plan:
        """Return a plan with a proposal applied.

        Raises:
            errors.NotFound: `proposal_not_found`.
            errors.Conflict: `proposal_decided`; or as for the edit.
            errors.RequestInvalid: as for the edit.
        """
        proposal = _open(plan, proposal_id)
        changed = await asyncio.to_thread(self._made, plan, proposal, at)
        decided = dataclasses.replace(proposal, status=task_reviews.ProposalState.ACCEPTED)
        return dataclasses.replace(changed, proposals=task_reviews.with_proposal(changed.proposals, decided))

    def _made(self, plan: plans.Plan, proposal: task_reviews.Proposal, at: str) -> plans.Plan:
        fields: dict[str, Any] = dict(proposal.fields)
        fields |= {"deps": tuple(fields["deps"])} if "deps" in fields else {}
        transitions.expect_chief_away(plan)
        match proposal.kind:
            case task_reviews.ProposalKind.ADD_TASK:
                return edits.with_new_task(plan, self._maker.task(plan, requests.NewTask(**fields)), at)
            case task_reviews.ProposalKind.EDIT_TASK:
                task = edits.editable(plan, proposal.task or 0)
                return edits.with_edit(plan, self._maker.edited(plan, task, requests.TaskEdit(**fields)), at)
        # A person may remove a finished task; a proposal was made before the task began.
        return edits.without_task(plan, edits.editable(plan, proposal.task or 0).id, at)

    async def _judged(self, plan: plans.Plan, proposals: list[task_reviews.Proposal]) -> list[task_reviews.Proposal]:
        found = []
        for proposal in proposals:
            if proposal.problem is None:
                try:
                    # Tried on the present plan, so that a person is offered only possible changes.
                    await asyncio.to_thread(self._made, plan, proposal, plan.updated_at)
                except errors.ControlRoomError as error:
                    proposal = dataclasses.replace(proposal, problem=plain.preview(error.message))
            refused = proposal.problem is not None
            status = task_reviews.ProposalState.REFUSED if refused else task_reviews.ProposalState.OPEN
            found.append(dataclasses.replace(proposal, status=status))
        return found

    # -- reviewers, and the texts for them

    def _why_person(self) -> str | None:
        why = review.why_person(self._library())
        if why is not None:
            return why
        try:
            self._catalogue.refuse_unready(self._version(is_judged=True), {})
        except errors.NotReady as error:
            return f"the chief cannot be asked: {error.flaws[0].message if error.flaws else error.message}"
        return None

    def _version(self, *, is_judged: bool) -> RecipeVersion:
        definitions = self._library()
        # Without an available chief, the run asks a person at once.
        known = definitions if is_judged else dataclasses.replace(definitions, agents=())
        return RecipeVersion(review.RECIPE, known, review.Review())

    async def _work(self, run_id: str) -> dict[str, plain.Json]:
        view = await self._outputs.view(run_id)
        written = run_outputs.paths(view)
        outputs: list[plain.Json] = [{"name": name, "path": path} for name, path in written.items()]
        rest = [(name, slot) for name, slot in view.board.slots.items() if name not in written]
        # Texts of agents are more useful to a reviewer than results of tools.
        for name, slot in sorted(rest, key=lambda each: each[1].type != "artifact"):
            if len(outputs) >= OUTPUTS:
                break
            with contextlib.suppress(errors.NotFound):
                content = await self._outputs.content(view, slot)
                text = content if isinstance(content, str) else plain.encode(content).decode()
                outputs.append({"name": name, "text": text[:OUTPUT_CHARACTERS], "characters": len(text)})
        return {"outputs": outputs[:OUTPUTS], "receipts": _receipts(view)}


def dismissed(plan: plans.Plan, proposal_id: int) -> plans.Plan:
    """Return a plan with a proposal dismissed.

    Raises:
        errors.NotFound, errors.Conflict: as `Reviews.accepted`.
    """
    decided = dataclasses.replace(_open(plan, proposal_id), status=task_reviews.ProposalState.DISMISSED)
    return dataclasses.replace(plan, proposals=task_reviews.with_proposal(plan.proposals, decided))


def _open(plan: plans.Plan, proposal_id: int) -> task_reviews.Proposal:
    facts: Mapping[str, plain.Json] = {"session_id": plan.session_id, "proposal": proposal_id}
    proposal = next((each for each in plan.proposals if each.id == proposal_id), None)
    if proposal is None:
        message = f"the plan {plan.session_id} has no proposal {proposal_id}"
        raise errors.NotFound(message, code="proposal_not_found", detail=facts)
    if proposal.status is not task_reviews.ProposalState.OPEN:
        reason = f": {proposal.problem}" if proposal.problem else ""
        message = f"proposal {proposal_id} is {proposal.status}{reason}"
        raise errors.Conflict(message, code="proposal_decided", detail={**facts, "status": proposal.status.value})
    return proposal


def _after(plan: plans.Plan, run_id: str, verdict: task_reviews.Verdict) -> plans.Plan:
    """Return a plan in its state after the verdict of a review."""
    status = plans.TaskState.DONE if verdict is task_reviews.Verdict.MET else plans.TaskState.FAILED
    for task in plan.tasks:
        if task.review is not None and task.review.run_id == run_id:
            return plan.with_task(dataclasses.replace(task, status=status))
    return plan


def _receipts(view: views.RunView) -> list[plain.Json]:
    found = [record for record in view.living() if record.done and record.line.get("receipt_id")]
    return [
        {"receipt_id": record.line["receipt_id"], "name": f"{record.key} ({record.line.get('tool')})"}
        for record in found
    ]


def _listed(task: plans.Task) -> str:
    after = f" after {', '.join(map(str, task.deps))}" if task.deps else ""
    described = " ".join(task.description.split())[:_DESCRIPTION_CHARACTERS]
    return f"{task.id} {task.status}{after}: {described}"
