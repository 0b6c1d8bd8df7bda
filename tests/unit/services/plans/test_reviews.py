"""Reviews of definitions of done in words: by the chief, by a person if the chief is unsure, and after a retry."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.domain import plans, task_reviews
from app.flows.session_plan import rules
from app.services import gates
from app.services.gate_inbox import GateQuery
from app.services.plans import requests
from tests import smoke
from tests.unit.services.plans import plan_harness
from tests.unit.services.plans.plan_harness import judges, task

WORDS = "the room shines"
SWEPT = task("sweep room 1", dod=WORDS)


@pytest.fixture
def place(tmp_path: Path) -> plan_harness.Place:
    """Return a project whose chief judges every task as met."""
    made = plan_harness.Place(tmp_path)
    made.project.say("review", text=judges("met"))
    return made


def is_open(plan: plans.Plan) -> bool:
    """Return whether the review of the first task asks a person."""
    review = plan.tasks[0].review
    return review is not None and review.gate_id is not None


class Asked:
    """A plan whose first task has a review that asks a person."""

    def __init__(self, harness: plan_harness.Harness, session_id: str) -> None:
        self.harness = harness
        self.plans = harness.application.plans
        self.session_id = session_id

    @classmethod
    async def begin(cls, place: plan_harness.Place, harness: plan_harness.Harness, *tasks: Any) -> Asked:
        """Start a plan whose chief is unsure."""
        place.project.say("review", text=judges("unsure", evidence=""))
        asked = cls(harness, await harness.started(*(tasks or (SWEPT, task("sweep room 2", 1)))))
        await asked.waits()
        return asked

    async def waits(self) -> plans.Task:
        """Wait for the gate, and return the task."""
        return (await self.harness.until(self.session_id, is_open)).tasks[0]

    async def decide(self, decision: str, message: str = "") -> plans.Plan:
        """Answer the gate, and return the plan at rest."""
        review = (await self.waits()).review
        assert review is not None
        reply = gates.Reply(decision=decision, message=message)
        await self.harness.application.gates.answer(review.gate_id or "", reply)
        return await self.harness.rested(self.session_id)

    async def run_id(self) -> str:
        """Return the run of the review."""
        review = (await self.harness.task(self.session_id, 1)).review
        assert review is not None
        return review.run_id or ""

    async def cancel(self) -> plans.Plan:
        """Cancel the run of the review, and return the plan at rest."""
        await self.harness.application.runs.cancel(await self.run_id())
        return await self.harness.comes_to(self.session_id, t1="failed")


class TestTheChief:
    """Verdicts of the chief."""

    async def test_a_task_that_is_met_is_done(self, harness: plan_harness.Harness) -> None:
        """A met task is done with verdict, evidence and usage, and the next task waits for the verdict."""
        session_id = await harness.started(SWEPT, task("sweep room 2", 1))
        plan = await harness.rested(session_id)
        review = plan.tasks[0].review

        assert plan.status is plans.PlanState.DONE
        assert review is not None
        assert (review.status, review.verdict, review.by) == ("done", "met", "chief")
        assert (review.why, review.evidence) == ("it is met", 'Evidence: "work of" (output:work)')
        assert review.usage is not None
        assert review.usage.keys() == {"input_tokens", "output_tokens", "cost_usd"}
        assert plan.tasks[1].review is None
        assert len(await harness.run_ids()) == 3
        view = await harness.application.runs.reader.view(review.run_id or "")
        assert (view.start.session_id, view.start.session_plan_task_id) == (session_id, 1)

    async def test_a_task_that_is_not_met_fails(self, place: plan_harness.Place, harness: plan_harness.Harness) -> None:
        """A task that is not met fails with an issue; a retry reviews its run again and closes the issue."""
        place.project.say("review", text=judges("not_met"))
        session_id = await harness.started(SWEPT, task("sweep room 2", 1))
        plan = await harness.rested(session_id)
        failed = plan.tasks[0]

        assert plan_harness.stand(plan) == {"t1": "failed", "t2": "blocked"}
        assert failed.error is not None
        assert failed.error["code"] == rules.NOT_MET
        assert "it is not_met" in str(failed.error["message"])
        assert [(issue.kind, issue.status) for issue in await harness.issues()] == [("task", "open")]

        place.project.say("review", text=judges("met"))
        await harness.application.plans.retry(session_id, 1)
        again = await harness.rested(session_id)

        assert again.status is plans.PlanState.DONE
        assert (again.tasks[0].run_id, again.tasks[0].attempt) == (failed.run_id, 1)
        assert again.tasks[0].review is not None
        assert again.tasks[0].review.number == 2
        assert [issue.status for issue in await harness.issues()] == ["closed"]

    @pytest.mark.parametrize(
        ("said", "why"),
        [
            ("the room looks fine to me", "gave no valid verdict"),
            (judges("perhaps"), "gave no valid verdict"),
            (judges("met", evidence='"words that stand nowhere" (output:work)'), "gave no valid verdict"),
            (judges("met", evidence='"work of" (output:nothing)'), "gave no valid verdict"),
            (judges("met", evidence="receipt_id: rcpt_x"), "gave no valid verdict"),
            (judges("unsure", evidence=""), "the chief is unsure: it is unsure"),
        ],
    )
    async def test_an_unsure_review_asks_a_person(
        self, place: plan_harness.Place, harness: plan_harness.Harness, said: str, why: str
    ) -> None:
        """An invalid verdict is corrected once; after that, and if the chief is unsure, a gate asks a person."""
        asked = await Asked.begin(place, harness)
        for key in ("review", "review.correction"):
            place.project.say(key, text=said)
        await asked.cancel()
        await asked.plans.retry(asked.session_id, 1)
        await asked.waits()
        (gate,) = (await harness.application.gates.page(GateQuery(session_id=asked.session_id)))[0]

        assert why in gate.prompt
        assert gate.options == ("met", "not_met")
        steps = [record.key for record in (await harness.application.runs.reader.view(gate.run_id)).living()]
        assert ("review.correction" in steps) is (why != "the chief is unsure: it is unsure")

        plan = await asked.decide("met", "I looked")
        review = plan.tasks[0].review
        assert review is not None
        assert (review.verdict, review.by, review.why, review.gate_id) == ("met", "person", "I looked", None)
        assert plan.status is plans.PlanState.DONE

    async def test_a_corrected_reply_counts(self, place: plan_harness.Place, harness: plan_harness.Harness) -> None:
        """The corrected reply of the chief counts."""
        place.project.say("review", text=judges("met", evidence='"nowhere" (output:work)'))
        place.project.say("review.correction", text=judges("met"))
        plan = await harness.rested(await harness.started(SWEPT))

        assert plan.status is plans.PlanState.DONE
        assert plan.tasks[0].review is not None
        assert plan.tasks[0].review.by == "chief"

    async def test_an_agent_that_fails_leaves_it_to_a_person(
        self, place: plan_harness.Place, harness: plan_harness.Harness
    ) -> None:
        """A chief whose agent fails does not fail the task, and a gate asks a person."""
        asked = await Asked.begin(place, harness)
        place.project.say("review", error={"code": "backend_error", "message": "no answer"})
        await asked.cancel()
        await asked.plans.retry(asked.session_id, 1)

        assert (await asked.decide("not_met")).tasks[0].status is plans.TaskState.FAILED


class TestWhoJudges:
    """Reviewers: a chief of tier t3 or t5, or a person, as the plan announces."""

    @pytest.mark.parametrize(
        ("agents", "why"),
        [
            ((plan_harness.CHIEF | {"tier": "t1"},), "the chief chief-1 is of tier t1, and only t3 or t5 may judge"),
            ((plan_harness.CHIEF | {"modes": ["conference"]},), "no agent with the archetype chief takes part"),
        ],
    )
    async def test_below_a_person_is_asked(self, tmp_path: Path, agents: Any, why: str) -> None:
        """Without a chief of a sufficient tier, the plan announces a person as the reviewer, and no agent is asked."""
        place = plan_harness.Place(tmp_path, agents=agents)
        definitions = place.reference.definition_cache.library()
        others = [agent for agent in definitions.agents if agent.id != "chief-1" and agent.archetype == "chief"]
        if others:
            why = f"the chief {others[0].id} is of tier t1" if "no agent" in why else why
        harness = await plan_harness.Harness(place).open()
        session_id = await harness.create(SWEPT, task("sweep room 2"))
        approved = await harness.application.plans.approve(session_id)

        assert approved.reviewer is not None
        assert (approved.reviewer.by, approved.reviewer.tasks) == ("person", (1,))
        assert why in (approved.reviewer.why or "")

        await harness.application.plans.start(session_id)
        plan = await Asked(harness, session_id).decide("met")
        assert plan.status is plans.PlanState.DONE
        run_id = await Asked(harness, session_id).run_id()
        assert [record.key for record in (await harness.application.runs.reader.view(run_id)).living()] == ["decide"]
        await harness.close()

    async def test_the_chief_is_announced(self, harness: plan_harness.Harness) -> None:
        """A plan names its chief as the reviewer and the tasks to review; a plan without words has no reviewer."""
        plan = await harness.show(await harness.create(SWEPT, task("sweep room 2")))
        assert plan.reviewer is not None
        assert (plan.reviewer.by, plan.reviewer.agent_id, plan.reviewer.tasks) == ("chief", "chief-1", (1,))

        assert (await harness.show(await harness.create(task("sweep room 2")))).reviewer is None

    async def test_plans_can_do_without(self, harness: plan_harness.Harness) -> None:
        """With `review: off` words are not reviewed; after `on`, tasks that finish later are."""
        harness.toolbox.hold(2)
        session_id = await harness.started(SWEPT, task("sweep room 2", 1, dod=WORDS), review="off")
        plan = await harness.comes_to(session_id, t1="done")
        assert (plan.tasks[0].review, plan.reviewer) == (None, None)

        plan = await harness.application.plans.edit(session_id, review="on")
        assert plan.reviewer is not None
        harness.toolbox.release(2)
        plan = await harness.rested(session_id)
        assert plan.status is plans.PlanState.DONE
        assert [each.review is not None for each in plan.tasks] == [False, True]

    async def test_words_of_older_plans_are_not_reviewed(self, harness: plan_harness.Harness) -> None:
        """A plan file of 0.1.0, without `review`, keeps its words unreviewed."""
        known = (await harness.show(await harness.create(SWEPT))).to_json()
        content: dict[str, Any] = {
            name: value for name, value in known.items() if name not in ("review", "reviewer", "revision")
        }
        harness.put("sp_old", content | {"session_id": "sp_old", "status": "running"})
        plan = await harness.rested("sp_old")

        assert plan.status is plans.PlanState.DONE
        assert (plan.tasks[0].dod, plan.tasks[0].review) == (WORDS, None)
        assert {"review", "reviewer", "proposals"} & plan.to_json().keys() == set()


class TestOrders:
    """Each order to a plan whose review asks a person (docs/reference/plans.md, the table of reviews)."""

    async def test_a_review_continues_in_a_paused_plan(
        self, place: plan_harness.Place, harness: plan_harness.Harness
    ) -> None:
        """A review in a paused plan continues and its verdict counts, and no other task begins before the resume."""
        asked = await Asked.begin(place, harness)
        await asked.plans.pause(asked.session_id)
        plan = await asked.decide("met")

        assert (plan.status, plan_harness.stand(plan)) == (plans.PlanState.PAUSED, {"t1": "done", "t2": "pending"})

        await asked.plans.resume(asked.session_id)
        assert (await harness.rested(asked.session_id)).status is plans.PlanState.DONE

    async def test_a_run_that_ends_in_a_paused_plan_is_reviewed(self, harness: plan_harness.Harness) -> None:
        """A task that ends in a paused plan is reviewed."""
        harness.toolbox.hold(1)
        session_id = await harness.started(SWEPT)
        await harness.toolbox.begun(1)
        await harness.application.plans.pause(session_id)
        harness.toolbox.release(1)
        plan = await harness.rested(session_id)

        assert plan.tasks[0].status is plans.TaskState.DONE
        assert plan.tasks[0].review is not None

    @pytest.mark.parametrize("order", ["edit", "remove", "retry", "force", "delete", "answer"])
    async def test_a_task_under_review_refuses_changes(
        self, place: plan_harness.Place, harness: plan_harness.Harness, order: str
    ) -> None:
        """A task under review cannot be edited, removed, retried, forced or answered, nor its plan deleted."""
        asked = await Asked.begin(place, harness)
        await asked.plans.pause(asked.session_id)
        run_id, before = await asked.run_id(), await harness.show(asked.session_id)
        orders: dict[str, Any] = {
            "edit": lambda: asked.plans.edit_task(asked.session_id, 1, requests.TaskEdit(dod="")),
            "remove": lambda: asked.plans.remove_task(asked.session_id, 1),
            "retry": lambda: asked.plans.retry(asked.session_id, 1),
            "force": lambda: asked.plans.force_start(asked.session_id, 1),
            "answer": lambda: asked.plans.answer(asked.session_id, 1, requests.ScopingAnswer(answer="x")),
            "delete": lambda: asked.plans.delete(asked.session_id),
        }
        with pytest.raises(errors.Conflict) as refused:
            await orders[order]()

        assert refused.value.code in ("task_begun", "wrong_state")
        assert order != "delete" or run_id in refused.value.message
        assert await harness.show(asked.session_id) == before

    async def test_a_cancelled_review_fails_the_task(
        self, place: plan_harness.Place, harness: plan_harness.Harness
    ) -> None:
        """A cancelled review fails the task with the reason, a retry reviews it again, and the plan can be deleted."""
        asked = await Asked.begin(place, harness)
        plan = await asked.cancel()

        assert (plan.tasks[0].error or {})["code"] == rules.REVIEW_FAILED
        assert plan.tasks[0].review is not None
        assert plan.tasks[0].review.status == "failed"

        place.project.say("review", text=judges("met"))
        await asked.plans.retry(asked.session_id, 1)
        again = await harness.rested(asked.session_id)
        assert again.status is plans.PlanState.DONE
        assert len(harness.toolbox.tries(1)) == 1

        await asked.plans.delete(asked.session_id)
        with pytest.raises(errors.NotFound):
            await harness.show(asked.session_id)

    async def test_a_review_that_is_sent_on_by_hand_counts(
        self, place: plan_harness.Place, harness: plan_harness.Harness
    ) -> None:
        """A cancelled review that a person resumes decides the task."""
        asked = await Asked.begin(place, harness)
        await asked.cancel()
        await harness.resume(await asked.run_id())
        plan = await asked.decide("met")

        assert plan.tasks[0].status is plans.TaskState.DONE

    async def test_a_deleted_review_fails_the_task(
        self, place: plan_harness.Place, harness: plan_harness.Harness
    ) -> None:
        """After a review's run was cancelled and deleted, a retry makes another review."""
        asked = await Asked.begin(place, harness)
        run_id = await asked.run_id()
        await asked.cancel()
        await harness.application.runs.delete(run_id)
        await asked.plans.retry(asked.session_id, 1)
        plan = await asked.decide("met")

        assert plan.tasks[0].status is plans.TaskState.DONE

    async def test_a_fresh_retry_executes_and_reviews_again(
        self, place: plan_harness.Place, harness: plan_harness.Harness
    ) -> None:
        """A fresh retry makes a new run with a review of its own, numbered from 1."""
        asked = await Asked.begin(place, harness)
        failed = (await asked.decide("not_met", "dust")).tasks[0]
        assert "dust" in str((failed.error or {})["message"])

        await asked.plans.retry(asked.session_id, 1, fresh=True)
        done = (await asked.decide("met")).tasks[0]
        assert done.review is not None
        assert (done.attempt, done.review.number, done.earlier_runs) == (2, 1, (failed.run_id,))

    async def test_switching_off_lets_a_review_end(
        self, place: plan_harness.Place, harness: plan_harness.Harness
    ) -> None:
        """After `review: off`, a review under way still decides, and a retry of the failed task has no review."""
        asked = await Asked.begin(place, harness)
        await asked.plans.edit(asked.session_id, review="off")
        failed = await asked.decide("not_met")
        assert failed.tasks[0].status is plans.TaskState.FAILED

        await asked.plans.retry(asked.session_id, 1)
        plan = await harness.rested(asked.session_id)
        assert (plan.status, plan.tasks[0].review) == (plans.PlanState.DONE, None)

    async def test_an_edit_of_the_file_changes_no_review(
        self, place: plan_harness.Place, harness: plan_harness.Harness
    ) -> None:
        """A verdict written into the file by hand is ignored."""
        asked = await Asked.begin(place, harness)
        content: Any = (await harness.show(asked.session_id)).to_json()
        content["intent"] = "by hand"
        content["tasks"][0]["review"] |= {"status": "done", "verdict": "met"}
        harness.put(asked.session_id, content)
        plan = await asked.decide("not_met")

        assert (plan.intent, plan.tasks[0].status) == ("by hand", plans.TaskState.FAILED)

    async def test_the_deleted_run_of_a_task_does_not_matter_any_more(
        self, place: plan_harness.Place, harness: plan_harness.Harness
    ) -> None:
        """A review does not need the run of its task, because it read that run when it began."""
        asked = await Asked.begin(place, harness)
        await harness.application.runs.delete((await harness.task(asked.session_id, 1)).run_id or "")
        plan = await asked.decide("met")

        assert plan.tasks[0].status is plans.TaskState.DONE

    async def test_a_restart_keeps_the_gate(self, place: plan_harness.Place, harness: plan_harness.Harness) -> None:
        """After a crash the gate of a review has the same id, and its answer counts."""
        asked = await Asked.begin(place, harness)
        before = await asked.waits()
        await harness.crash()
        await harness.restart()
        again = Asked(harness, asked.session_id)

        assert await again.waits() == before
        assert (await again.decide("met")).status is plans.PlanState.DONE
        assert len(await harness.run_ids()) == 3


class TestProposals:
    """Changes that the chief proposes and a person accepts."""

    async def begin(self, place: plan_harness.Place, harness: plan_harness.Harness, *proposals: Any) -> str:
        """Return a started plan with proposals from the review of its first task."""
        place.project.say("review", text=judges("met", proposals=list(proposals)))
        harness.toolbox.hold(2)
        session_id = await harness.started(SWEPT, task("sweep room 2"), task("sweep room 3", 2))
        await harness.comes_to(session_id, t1="done")
        return session_id

    async def test_a_proposal_changes_the_plan_only_when_accepted(
        self, place: plan_harness.Place, harness: plan_harness.Harness
    ) -> None:
        """Accepting a proposal makes its edit once; before that, and after a dismissal, the plan is unchanged."""
        added = {"kind": "add_task", "why": "dust", "description": "sweep room 4", "deps": [1], "dod": "", "task": None}
        edited = {"kind": "edit_task", "why": "slow", "task": 3, "description": "sweep room 33"}
        session_id = await self.begin(place, harness, added, edited, {"kind": "remove_task", "why": "no", "task": 3})
        plan = await harness.show(session_id)

        assert [(each.id, each.kind, each.status, each.after_task) for each in plan.proposals] == [
            (1, "add_task", "open", 1),
            (2, "edit_task", "open", 1),
            (3, "remove_task", "open", 1),
        ]
        assert len(plan.tasks) == 3

        plan = await harness.application.plans.accept(session_id, 1)
        assert (plan.tasks[3].description, plan.tasks[3].deps) == ("sweep room 4", (1,))
        plan = await harness.application.plans.dismiss(session_id, 2)
        plan = await harness.application.plans.accept(session_id, 3)
        assert [each.id for each in plan.tasks] == [1, 2, 4]
        assert [each.status for each in plan.proposals] == ["accepted", "dismissed", "accepted"]

        with pytest.raises(errors.Conflict) as refused:
            await harness.application.plans.accept(session_id, 2)
        assert refused.value.code == "proposal_decided"
        with pytest.raises(errors.NotFound) as unknown:
            await harness.application.plans.dismiss(session_id, 9)
        assert unknown.value.code == "proposal_not_found"

    @pytest.mark.parametrize(
        ("proposal", "problem"),
        [
            ("nonsense", "it is no object"),
            ({"kind": "burn", "why": "x"}, 'its kind "burn" is none of'),
            ({"kind": ["add_task"], "why": "x"}, 'its kind ["add_task"] is none of'),
            ({"why": "x"}, "its kind null is none of"),
            ({"kind": "add_task", "why": "x"}, "$.description"),
            ({"kind": "add_task", "why": "x", "description": "sweep", "recipe_id": "sweep"}, "$.recipe_id"),
            ({"kind": "add_task", "why": "x", "description": "sweep room 9", "deps": [9]}, "$.deps[0]"),
            ({"kind": "edit_task", "why": "x", "task": 3}, "it changes nothing"),
            ({"kind": "edit_task", "why": "x", "task": 9, "dod": "x"}, "has no task 9"),
            ({"kind": "edit_task", "why": "x", "task": 1, "dod": "x"}, "task 1 is done"),
            ({"kind": "edit_task", "why": "x", "task": 2, "deps": [3]}, "task 2 is running"),
            ({"kind": "remove_task", "why": "x", "task": 1}, "task 1 is done"),
            ({"kind": "remove_task", "why": "x", "task": 2}, "task 2 is running"),
            ({"kind": "remove_task", "why": "x", "task": True}, "$.task"),
            ({"kind": "add_task", "why": "x", "description": "x" * 9_000}, "bytes"),
        ],
    )
    async def test_an_invalid_proposal_is_refused_and_the_verdict_counts(
        self, place: plan_harness.Place, harness: plan_harness.Harness, proposal: Any, problem: str
    ) -> None:
        """An invalid proposal is stored as refused with its reason, and the verdict counts."""
        session_id = await self.begin(place, harness, proposal)
        plan = await harness.show(session_id)

        assert [each.status for each in plan.proposals] == ["refused"]
        named = proposal.get("kind") if isinstance(proposal, dict) else None
        assert plan.proposals[0].kind == (named if named in [*task_reviews.ProposalKind] else None)
        assert problem in (plan.proposals[0].problem or "")
        assert len(plan.tasks) == 3
        with pytest.raises(errors.Conflict):
            await harness.application.plans.accept(session_id, 1)

    async def test_a_proposal_about_a_removed_task_is_refused(
        self, place: plan_harness.Place, harness: plan_harness.Harness
    ) -> None:
        """Accepting a proposal about a task that was removed since is refused, and the proposal stays open."""
        session_id = await self.begin(place, harness, {"kind": "edit_task", "why": "x", "task": 3, "dod": "soon"})
        await harness.application.plans.remove_task(session_id, 3)
        with pytest.raises(errors.NotFound) as refused:
            await harness.application.plans.accept(session_id, 1)

        assert refused.value.code == "task_not_found"
        assert [each.status for each in (await harness.show(session_id)).proposals] == ["open"]

    async def test_a_task_that_was_done_since_is_not_removed(
        self, place: plan_harness.Place, harness: plan_harness.Harness
    ) -> None:
        """Accepting the removal of a task that was done since is refused."""
        session_id = await self.begin(place, harness, {"kind": "remove_task", "why": "no need", "task": 3})
        harness.toolbox.release(2)
        await harness.rested(session_id)
        with pytest.raises(errors.Conflict) as refused:
            await harness.application.plans.accept(session_id, 1)

        assert refused.value.code == "task_begun"
        plan = await harness.show(session_id)
        assert [each.status for each in plan.tasks] == ["done"] * 3
        assert [each.status for each in plan.proposals] == ["open"]

    async def test_the_task_that_was_not_done_can_be_changed(
        self, place: plan_harness.Place, harness: plan_harness.Harness
    ) -> None:
        """A proposal may edit the task that the review has failed."""
        proposal = {"kind": "edit_task", "why": "x", "task": 1, "dod": "soon"}
        place.project.say("review", text=judges("not_met", proposals=[proposal]))
        session_id = await harness.started(SWEPT)
        plan = await harness.rested(session_id)
        assert [each.status for each in plan.proposals] == ["open"]

        plan = await harness.application.plans.accept(session_id, 1)
        assert plan.tasks[0].dod == "soon"

    async def test_a_file_proposes_nothing(self, place: plan_harness.Place, harness: plan_harness.Harness) -> None:
        """An edit of the file cannot change the proposals."""
        session_id = await self.begin(place, harness, {"kind": "remove_task", "why": "x", "task": 3})
        plan = await harness.show(session_id)
        content: Any = dataclasses.replace(plan, proposals=(), intent="by hand").to_json()
        harness.put(session_id, content)
        plan = await harness.application.plans.edit(session_id, review="off")

        assert plan.intent == "by hand"
        assert [each.status for each in plan.proposals] == ["open"]


LOST = ("storage.", "pool.")
"""Prefixes of the points at which a crash is tried: every write."""


@pytest.mark.parametrize(
    ("verdict", "status"),
    smoke.only(("unsure", "done"), [("met", "done"), ("not_met", "failed"), ("unsure", "done")]),
)
@pytest.mark.slow
async def test_a_review_comes_out_the_same_wherever_the_process_dies(
    place: plan_harness.Place, verdict: str, status: str
) -> None:
    """After a crash at any write, a review has one run, one verdict, and its proposals once."""
    proposals = [{"kind": "add_task", "why": "x", "description": "sweep room 2"}]
    place.project.say("review", text=judges(verdict, proposals=proposals))

    async def begin() -> tuple[plan_harness.Harness, str]:
        harness = await plan_harness.Harness(place).open()
        session_id = await harness.create(SWEPT)
        await harness.application.plans.approve(session_id)
        harness.probes.passed_points.clear()
        return harness, session_id

    async def act(harness: plan_harness.Harness, session_id: str) -> None:
        await plan_harness.start_and_rest(harness, session_id)
        while (await harness.task(session_id, 1)).status is plans.TaskState.RUNNING:
            for gate in (await harness.application.gates.page(GateQuery(session_id=session_id)))[0]:
                # The run may already be executing with an earlier answer.
                with contextlib.suppress(errors.Conflict):
                    await harness.application.gates.answer(gate.gate_id, gates.Reply(decision="met"))
            await asyncio.sleep(0)

    async def check(harness: plan_harness.Harness, session_id: str) -> None:
        plan = await harness.show(session_id)
        review = plan.tasks[0].review
        assert plan.tasks[0].status == status
        assert review is not None
        assert (review.status, review.number, review.gate_id) == ("done", 1, None)
        assert review.by == ("person" if verdict == "unsure" else "chief")
        assert {plan.tasks[0].run_id, review.run_id} == {*await harness.run_ids()}
        assert [each.status for each in plan.proposals] == ["open"]
        assert len(await harness.issues()) == (1 if status == "failed" else 0)

    points = await plan_harness.crash_everywhere(begin, check, LOST, act)
    assert len(points) > 5
