"""Tests of the driver with the scripted backend: prompts, events, and ends of runs (agent-recipes, 20.2, 20.4)."""

from __future__ import annotations

import asyncio
import re

import pytest

from app.dialects.agent_recipes import outcomes
from app.domain import plain, runs
from app.domain.states import RunState
from tests.unit.dialects.agent_recipes import recipe_harness
from tests.unit.dialects.agent_recipes.recipe_harness import AGAIN, OTHER_SAID, STRAIGHT, Play, recipe, says, with_step
from tests.unit.engine import samples

RUN_ID = "20260210T143000Z-abcdef"
ONE_LOOP = {"review": says("issues-found"), "fix": says("complete"), "review#2": says("no-issues")}


async def test_a_run_from_its_first_prompt_to_its_exit(tmp_path):
    """Each outcome leads to the next step, and the reason of the exit is the run's ending."""
    play = Play(tmp_path, recipe_harness.RECIPE, {**ONE_LOOP, "commit": says("committed")})

    assert await play.run() is RunState.DONE
    assert play.keys == ["review", "fix", "review#2", "commit"]
    assert play.manifest["ending"] == {"reason": "changes-committed", "partial": False, "failed_steps": []}
    assert play.manifest["error"] is None
    assert (play.manifest["current_step_index"], play.manifest["total_steps"]) == (4, None)


async def test_a_line_names_step_visit_and_slot(tmp_path):
    """A line names the step, its index in the recipe, the visit, and the slot that it fills."""
    play = Play(tmp_path, recipe_harness.RECIPE, {**ONE_LOOP, "review#2": "Hm.", "review#2.reminder": OTHER_SAID})
    await play.run()
    names = ("key", "step_id", "step_index", "visit", "output_slot", "agent_id", "attempt")

    assert [[line[name] for name in names] for line in play.lines()] == [
        ["review", "review", 0, 1, "review", "script", 1],
        ["fix", "fix", 1, 1, "fix", "script", 1],
        ["review#2", "review", 0, 2, "review", "script", 1],
        ["review#2.reminder", "review", 0, 2, "review", "script", 1],
    ]


async def test_a_prompt_contains_only_the_steps_text_and_the_block(tmp_path):
    """The prompt contains only the step's text and the block, and agents use their own tools."""
    play = Play(tmp_path, recipe_harness.RECIPE, STRAIGHT)
    await play.run()
    first, last = play.prompts

    assert first.text == outcomes.prompt("Review it.", ["no-issues", "issues-found", "other"])
    assert last.text == outcomes.prompt("Commit it.", ["committed", "other"])
    assert (first.system, first.tools, first.model, first.max_tokens) == (None, True, None, None)
    assert first.timeout_seconds == 24 * 60 * 60
    assert first.env == {"CONTROL_ROOM_RUN_ID": RUN_ID, "CONTROL_ROOM_DEPTH": "0"}


async def test_one_conversation_is_created_and_then_resumed(tmp_path):
    """The conversation's id is a UUID made of the run's id, and is in the lines."""
    play = Play(tmp_path, recipe_harness.RECIPE, {"review": "Hm.", "review.reminder": says("no-issues"), **_commit()})
    await play.run()
    session_id = runs.agent_session_id(RUN_ID, 0)

    assert [(prompt.agent_session_id, prompt.session_created) for prompt in play.prompts] == [
        (session_id, False),
        (session_id, True),
        (session_id, True),
    ]
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", session_id)
    assert {line["agent_session_id"] for line in play.lines()} == {session_id}


def test_conversations_are_different():
    """Each run and each restart has a conversation of its own, always with the same id."""
    ids = {runs.agent_session_id(run_id, restarts) for run_id in ("a", "b") for restarts in range(50)}

    assert len(ids) == 100
    assert runs.agent_session_id("a", 1) == "9fbb4cc2-b9fe-5682-9ae1-4ec02d47ccb9"


async def test_a_given_conversation_is_resumed(tmp_path):
    """A given conversation is resumed from the first prompt on."""
    play = Play(tmp_path, recipe_harness.RECIPE, STRAIGHT, {"agent_session_id": "ses_1"})
    await play.run()

    assert [(prompt.agent_session_id, prompt.session_created) for prompt in play.prompts] == [("ses_1", True)] * 2


async def test_a_reply_without_an_outcome_is_asked_for_again(tmp_path):
    """One reminder is sent to the same conversation, with the step's model; then the run continues."""
    play = Play(
        tmp_path,
        with_step("review", model="opus"),
        {"review": "Fine.", "review.reminder": says("no-issues"), **_commit()},
    )

    assert await play.run() is RunState.DONE
    assert play.keys == ["review", "review.reminder", "commit"]
    reminder = play.prompts[1]
    assert reminder.text == outcomes.reminder(
        outcomes.NoOutcome(error=outcomes.NO_JSON), ["no-issues", "issues-found", "other"]
    )
    assert (reminder.model, reminder.session_created) == ("large-1", True)


@pytest.mark.parametrize(
    ("reply", "malformed"),
    [
        ("Fine.", None),
        ("", None),
        ("ABSTAIN", None),
        ("{bad}", "{bad}"),
        (says("done"), '{"outcome": "done"}'),
        ('{"outcome": "other"}', '{"outcome": "other"}'),
    ],
)
async def test_a_second_reply_without_an_outcome_ends_the_run(tmp_path, reply, malformed):
    """A second reply without a valid outcome ends the run: empty, prose, broken JSON or an unknown outcome."""
    play = Play(tmp_path, recipe_harness.RECIPE, {"*": reply})

    assert await play.run() is RunState.FAILED
    assert play.keys == ["review", "review.reminder"]
    assert play.reason == "orchestration-error"
    error = play.manifest["error"]
    assert (error["code"], error["key"]) == ("orchestration_error", "review.reminder")
    assert (error["detail"]["step"], error["detail"]["malformedJson"]) == ("review", malformed)
    assert play.manifest["ending"]["failed_steps"] == ["review.reminder"]


async def test_each_visit_has_its_own_reminder(tmp_path):
    """Each visit of a step may have one reminder."""
    reminded = {"review": "Hm.", "review.reminder": says("issues-found"), "fix": says("complete")}
    play = Play(
        tmp_path,
        recipe_harness.RECIPE,
        {**reminded, "review#2": "Hm.", "review#2.reminder": says("no-issues"), **_commit()},
    )

    assert await play.run() is RunState.DONE
    assert play.keys == ["review", "review.reminder", "fix", "review#2", "review#2.reminder", "commit"]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"error": {"code": "agent_exited", "message": "It died.", "detail": {"exit_code": 1}}}, "agent_exited"),
        ({"error": {"code": "agent_timeout", "message": "Too slow."}}, "agent_timeout"),
    ],
)
async def test_an_agent_that_fails_ends_the_run(tmp_path, said, code):
    """A crash or a time-out of an agent is a backend error: the step is not repeated, and its cost is counted."""
    play = Play(tmp_path, recipe_harness.RECIPE, {"review": {**said, "usage": {"cost_usd": 0.5}}})

    assert await play.run() is RunState.FAILED
    assert (play.keys, play.reason) == (["review"], "backend-error")
    assert play.manifest["error"]["code"] == code
    assert play.manifest["error"]["detail"] == said["error"].get("detail", {})
    assert play.manifest["machine"]["sessionCreated"] is False
    assert play.manifest["machine"]["costUsd"] == play.manifest["usage"]["cost_usd"] == 0.5


async def test_an_agent_that_never_answers_is_cut_off_by_the_limit(tmp_path, monkeypatch):
    """The time limit of a step ends the run like any backend error."""
    monkeypatch.setattr("app.agents.performer.DEFAULT_TIMEOUT_SECONDS", 0.05)
    play = Play(tmp_path, recipe_harness.RECIPE, {"review": {"hang": True}})

    assert await play.run() is RunState.FAILED
    assert (play.reason, play.manifest["error"]["code"]) == ("backend-error", "agent_timeout")


async def test_an_unknown_backend_ends_the_run(tmp_path):
    """The error names the unknown backend and the known ones."""
    play = Play(tmp_path, recipe_harness.RECIPE, STRAIGHT, {"backend": "codex"})

    assert await play.run() is RunState.FAILED
    assert (play.reason, play.manifest["error"]["code"]) == ("backend-error", "unknown_backend")


async def test_a_step_is_not_visited_more_often_than_allowed(tmp_path):
    """The fourth visit of a step is refused, and the ending names the step."""
    play = Play(tmp_path, recipe_harness.RECIPE, {"review*": says("issues-found"), "fix*": says("complete")})

    assert await play.run() is RunState.FAILED
    assert play.keys == ["review", "fix", "review#2", "fix#2", "review#3", "fix#3"]
    assert play.reason == "max-step-visits-exceeded:review"
    error = play.manifest["error"]
    assert (error["code"], error["key"], error["detail"]["limit"]) == ("max_step_visits_exceeded", "fix#3", 3)


@pytest.mark.parametrize(
    ("args", "steps", "reason"),
    [
        ({"max_steps": 3}, 3, "max-total-steps"),
        ({"max_steps": 1}, 1, "max-total-steps"),
        ({"max_visits": 1}, 2, "max-step-visits-exceeded:review"),
        ({"max_visits": 60}, 100, "max-total-steps"),
    ],
)
async def test_arguments_go_before_guardrails(tmp_path, args, steps, reason):
    """Arguments can make a run shorter or longer than the recipe's guardrails."""
    play = Play(tmp_path, recipe_harness.RECIPE, {"review*": says("issues-found"), "fix*": says("complete")}, args)

    assert await play.run() is RunState.FAILED
    assert (len(play.keys), play.reason) == (steps, reason)


@pytest.mark.parametrize(
    ("run", "recipe_model", "step", "expected"),
    [
        (None, None, None, [None, "small-1"]),
        (None, "sonnet", None, ["middle-1", "small-1"]),
        (None, "sonnet", "opus", ["large-1", "small-1"]),
        ("opus", "sonnet", "haiku", ["large-1", "large-1"]),
    ],
)
async def test_the_model_of_a_step(tmp_path, run, recipe_model, step, expected):
    """The run's argument overrides the step's model, which overrides the recipe's; without any the backend decides."""
    document = with_step("review", **({"model": step} if step else {}))
    document |= {"model": recipe_model} if recipe_model else {}
    play = Play(tmp_path, document, STRAIGHT, {"model": run} if run else {})
    await play.run()

    assert [prompt.model for prompt in play.prompts] == expected


async def test_a_system_prompt_reaches_every_prompt(tmp_path):
    """A system prompt is appended to the backend's own for every prompt, reminders included."""
    play = Play(tmp_path, recipe_harness.RECIPE, {"*": "Hm."}, {"system_prompt": "Answer in Latin."})
    await play.run()

    assert [prompt.system for prompt in play.prompts] == ["Answer in Latin."] * 2


async def test_defaults_replace_missing_arguments_in_prompts(tmp_path):
    """The recipe's defaults replace missing arguments in prompts."""
    schema = {"properties": {"branch": {"type": "string", "default": "main"}, "what": {}}, "required": ["what"]}
    document = with_step("review", prompt="On {{args.branch}}: {{args.what}}.") | {"args_schema": schema}
    play = Play(tmp_path, document, STRAIGHT, {"what": {"deep": [1]}})
    await play.run()

    assert play.prompts[0].text.startswith('On main: {"deep":[1]}.\n\nEnd your response')


async def test_other_is_an_exit(tmp_path):
    """An agent that reports `other` ends the run as done, with its reason."""
    play = Play(tmp_path, recipe_harness.RECIPE, {"review": OTHER_SAID})

    assert await play.run() is RunState.DONE
    assert play.reason == "user-provided-other"
    assert play.notes("step:outcome")[0]["otherDescription"] == "there is no repository"


@pytest.mark.parametrize(("exit_on_other", "keys"), [(True, ["review"]), (False, ["review", "commit"])])
async def test_other_may_be_followed(tmp_path, exit_on_other, keys):
    """Only a recipe that allows it continues after `other`."""
    onwards = recipe_harness.REVIEW["onOutcome"] | {"other": {"nextStep": "commit", "reason": "puzzled"}}
    document = with_step("review", onOutcome=onwards) | {"guardrails": {"exitOnOther": exit_on_other}}
    play = Play(tmp_path, document, {"review": OTHER_SAID, **_commit()})

    assert await play.run() is RunState.DONE
    assert play.keys == keys
    assert play.reason == ("puzzled" if exit_on_other else "changes-committed")


async def test_a_slot_holds_the_last_reply_of_a_step(tmp_path):
    """A later visit, or the reply to a reminder, replaces the content of the step's slot."""
    script = {
        "review": "First.",
        "review.reminder": says("issues-found"),
        "fix": says("complete"),
        "review#2": says("no-issues", "Third."),
    }
    play = Play(tmp_path, recipe_harness.RECIPE, {**script, **_commit()})
    await play.run()
    slot = play.slots["review"]

    assert list(play.slots) == ["review", "fix", "commit"]
    assert slot["text"] == says("no-issues", "Third.")
    assert (slot["type"], slot["agent_id"]) == ("artifact", "script")
    assert play.lines()[0]["output"] == "First."


async def test_a_reply_too_large_for_the_journal_is_read_from_its_blob(tmp_path):
    """The outcome in a reply of a megabyte is found, and the slot refers to the whole text."""
    reply = says("no-issues", "word " * 200_000)
    play = Play(tmp_path, recipe_harness.RECIPE, {"review": reply, **_commit()})

    assert await play.run() is RunState.DONE
    assert play.slots["review"]["text"] is None
    assert play.disk.blobs[play.slots["review"]["sha256"]].decode() == reply
    assert play.notes("step:outcome")[0]["responseLength"] == len(reply)


# -- restarts


def _commit():
    return {"commit": says("committed")}


def _restarting(**changes):
    return recipe(steps={**recipe_harness.RECIPE["steps"], "commit": AGAIN}, **changes)


TWICE = {
    **STRAIGHT,
    "restart1/review": says("issues-found"),
    "restart1/fix": says("complete"),
    "restart1/review#2": OTHER_SAID,
}


async def test_a_restart_begins_anew_in_a_new_conversation(tmp_path):
    """A restart has a new conversation, counts and keys, in the same run and folder."""
    play = Play(tmp_path, _restarting(), TWICE, working_dir="/somewhere")

    assert await play.run() is RunState.DONE
    assert play.keys == ["review", "commit", "restart1/review", "restart1/fix", "restart1/review#2"]
    first, second = runs.agent_session_id(RUN_ID, 0), runs.agent_session_id(RUN_ID, 1)
    assert [(prompt.agent_session_id, prompt.session_created) for prompt in play.prompts] == [
        (first, False),
        (first, True),
        (second, False),
        (second, True),
        (second, True),
    ]
    assert {str(prompt.working_dir) for prompt in play.prompts} == {"/somewhere"}
    machine = play.manifest["machine"]
    assert (machine["restarts"], machine["sessionId"], machine["stepCount"]) == (1, second, 3)
    assert machine["stepVisitCounts"] == {"review": 2, "fix": 1}


async def test_restarts_continue_until_the_agent_ends_the_loop(tmp_path):
    """Without a limit on restarts only the agent ends the loop; each turn has a conversation of its own."""
    script = {"*review": says("no-issues"), "*commit": says("committed"), "restart30/review": OTHER_SAID}
    play = Play(tmp_path, _restarting(), script)

    assert await play.run() is RunState.DONE
    assert len({prompt.agent_session_id for prompt in play.prompts}) == 31
    assert play.manifest["current_step_index"] == 61


@pytest.mark.parametrize(("limit", "keys"), [(0, 2), (1, 4), (2, 6)])
async def test_restarts_can_be_limited(tmp_path, limit, keys):
    """A restart beyond the limit ends the run."""
    play = Play(
        tmp_path, _restarting(), {"*review": says("no-issues"), "*commit": says("committed")}, {"max_restarts": limit}
    )

    assert await play.run() is RunState.FAILED
    assert (len(play.keys), play.reason, play.manifest["error"]["code"]) == (keys, "max-restarts", "max_restarts")


async def test_a_restart_may_lead_to_another_recipe(tmp_path):
    """The other recipe is frozen with the run; its guardrails, model and defaults apply, and it may lead back."""
    back = {"action": "restart-new-session", "recipeId": "small"}
    step = {
        "prompt": "Tidy up {{args.depth}}.",
        "outcomes": ["done", "other"],
        "onOutcome": {"done": back, "other": recipe_harness.OTHER},
    }
    schema = {"properties": {"depth": {"type": "integer", "default": 4}}}
    other = recipe(id="tidy", initialStep="tidy", steps={"tidy": step}, model="opus", args_schema=schema)
    document = _restarting()
    document["steps"]["commit"] = plain.plain(AGAIN)
    document["steps"]["commit"]["onOutcome"]["committed"]["recipeId"] = "tidy"
    script = {**STRAIGHT, "restart1/tidy": says("done"), "restart2/review": OTHER_SAID}
    play = Play(tmp_path, document, script, others=(recipe_harness.parsed(other),))

    assert await play.run() is RunState.DONE
    assert play.keys == ["review", "commit", "restart1/tidy", "restart2/review"]
    assert play.prompts[2].text.startswith("Tidy up 4.")
    assert play.prompts[2].model == "large-1"
    assert [note["recipeId"] for note in play.notes("recipe:started")] == ["small", "tidy", "small"]


# -- what a run shows


async def test_the_machine_is_seen(tmp_path):
    """The manifest has state, conversation and cost under the names in their document."""
    usage = {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.25}
    script = {name: {"text": text, "usage": usage} for name, text in {**ONE_LOOP, **_commit()}.items()}
    play = Play(tmp_path, recipe_harness.RECIPE, script)
    await play.run()

    assert play.manifest["machine"] == {
        "recipeId": "small",
        "currentStep": "commit",
        "stepCount": 4,
        "stepVisitCounts": {"review": 2, "fix": 1, "commit": 1},
        "stepRetryCounts": {"review": 0, "fix": 0, "commit": 0},
        "startTime": 1770733800000,
        "sessionCreated": True,
        "sessionId": runs.agent_session_id(RUN_ID, 0),
        "restarts": 0,
        "costUsd": 1.0,
        "stepCostsUsd": {"review": 0.5, "fix": 0.25, "commit": 0.25},
    }
    assert play.manifest["usage"] == {"input_tokens": 40, "output_tokens": 20, "cost_usd": 1.0}


async def test_the_machine_is_seen_while_an_agent_works(tmp_path):
    """A run under way shows its step and visit, and whether a reminder was sent."""
    play = Play(tmp_path, recipe_harness.RECIPE, {**ONE_LOOP, "review#2": "Hm.", "review#2.reminder": {"hang": True}})
    running = asyncio.ensure_future(play.run())
    while len(play.prompts) < 4:  # noqa: ASYNC110 - no other sign of a prompt exists
        await asyncio.sleep(0)
    machine = play.last.view().board.progress.machine
    play.last.cancel()
    await running

    assert (machine["currentStep"], machine["stepCount"]) == ("review", 3)
    assert machine["stepVisitCounts"] == {"review": 2, "fix": 1}
    assert machine["stepRetryCounts"] == {"review": 1, "fix": 0}
    assert play.manifest["status"] == "cancelled"


FIELDS = [
    "sessionId",
    "recipeId",
    "step",
    "stepCount",
    "visitCount",
    "outcome",
    "error",
    "model",
    "promptLength",
    "responseLength",
    "durationMs",
    "costUsd",
]


async def test_events_are_complete_and_in_order(tmp_path):
    """The events are complete and in order, and each has every field of the list."""
    play = Play(
        tmp_path,
        _restarting(),
        {**TWICE, "commit": "Hm.", "commit.reminder": {"text": says("committed"), "usage": {"cost_usd": 0.5}}},
    )
    await play.run()
    told = [(note["event"], note["step"], note["stepCount"], note["visitCount"]) for note in play.notes()]

    assert told == [
        ("recipe:started", "review", 1, 1),
        ("step:started", "review", 1, 1),
        ("step:outcome", "review", 1, 1),
        ("step:transition", "review", 1, 1),
        ("step:started", "commit", 2, 1),
        ("step:retry", "commit", 2, 1),
        ("step:outcome", "commit", 2, 1),
        ("step:transition", "commit", 2, 1),
        ("recipe:restarted", "review", 1, 1),
        ("recipe:started", "review", 1, 1),
        ("step:started", "review", 1, 1),
        ("step:outcome", "review", 1, 1),
        ("step:transition", "review", 1, 1),
        ("step:started", "fix", 2, 1),
        ("step:outcome", "fix", 2, 1),
        ("step:transition", "fix", 2, 1),
        ("step:started", "review", 3, 2),
        ("step:outcome", "review", 3, 2),
        ("recipe:exited", "review", 3, 2),
    ]
    assert all(set(FIELDS) <= set(note) for note in play.notes())
    assert all((note["maxStepVisits"], note["maxTotalSteps"]) == (3, 100) for note in play.notes())


async def test_events_bring_their_facts(tmp_path):
    """Lengths, model, outcome, error, cost and the reason are in the events where they are known."""
    play = Play(
        tmp_path,
        recipe_harness.RECIPE,
        {**STRAIGHT, "commit": "{bad}", "commit.reminder": {"text": says("committed"), "usage": {"cost_usd": 0.5}}},
    )
    await play.run()
    started, outcome, retry = play.notes("step:started"), play.notes("step:outcome"), play.notes("step:retry")[0]
    exited, begun = play.notes("recipe:exited")[0], play.notes("recipe:started")[0]

    assert (begun["recipeLabel"], begun["backend"], begun["recipeId"]) == ("Small", "script", "small")
    assert [note["promptLength"] for note in started] == [len(prompt.text) for prompt in play.prompts[:2]]
    assert [note["model"] for note in started] == [None, "haiku"]
    assert [(note["outcome"], note["costUsd"]) for note in outcome] == [("no-issues", None), ("committed", 0.5)]
    assert all(note["durationMs"] is not None and note["responseLength"] > 0 for note in outcome)
    assert retry["error"].startswith("Invalid JSON: ")
    assert (retry["malformedJson"], retry["responseLength"]) == ("{bad}", 5)
    assert play.notes("step:transition")[0]["toStep"] == "commit"
    assert (exited["reason"], exited["error"], exited["totalCostUsd"]) == ("changes-committed", None, 0.5)
    assert exited["stepCostsUsd"] == {"review": None, "commit": 0.5}


async def test_every_failure_has_an_exit_event(tmp_path):
    """Every end of a run has an exit event, with the error of a failure."""
    broken = Play(tmp_path, recipe_harness.RECIPE, {"review": {"error": {"code": "c", "message": "It died."}}})
    await broken.run()
    lost = Play(tmp_path, recipe_harness.RECIPE, {"*": "Hm."})
    await lost.run()

    assert [(note["reason"], note["error"]) for note in broken.notes("recipe:exited")] == [
        ("backend-error", "It died.")
    ]
    assert [note["reason"] for note in lost.notes("recipe:exited")] == ["orchestration-error"]


# -- restarts of the service, and resumes


async def test_a_restart_of_the_service_repeats_nothing(tmp_path):
    """A restart after any line of the journal repeats no prompt and no event, and reaches the same ending."""
    script = {**TWICE, "review": "Hm.", "review.reminder": says("no-issues")}
    whole = Play(tmp_path, _restarting(), script)
    await whole.run()
    told = [event.key for event in whole.disk.events if event.type == "recipe.note"]

    for length in range(len(whole.keys) + 1):
        play = Play(tmp_path, _restarting(), script)
        play.disk.steps = whole.disk.steps[:length]
        assert await play.run() is RunState.DONE
        assert [prompt.key for prompt in play.prompts] == whole.keys[length:]
        assert play.manifest["machine"] == {
            **whole.manifest["machine"],
            "startTime": play.manifest["machine"]["startTime"],
        }
        assert play.slots == whole.slots
        assert [event.key for event in play.disk.events if event.type == "recipe.note"] == told


async def test_a_prompt_that_was_cut_off_is_sent_again_as_another_try(tmp_path):
    """A prompt that was cut off may have created its conversation: the backend gets it again as a further attempt."""
    play = Play(tmp_path, recipe_harness.RECIPE, {"review": [{"hang": True}, says("no-issues")], **_commit()})
    running = asyncio.ensure_future(play.run())
    while not play.prompts:  # noqa: ASYNC110 - no other sign of a prompt exists
        await asyncio.sleep(0)
    play.last.interrupt()
    await running

    assert await play.run() is RunState.DONE
    assert [(prompt.key, prompt.attempt, prompt.session_created) for prompt in play.prompts] == [
        ("review", 1, False),
        ("review", 2, False),
        ("commit", 1, True),
    ]


def _resumed(play, dead, overrides=None):
    line = {"kind": "resumed", "at": samples.AT, "dead": [[position, position] for position in dead]}
    play.disk.control.append(plain.encode(line | ({"overrides": overrides} if overrides else {})))
    play.prompts.clear()


async def test_a_resume_after_an_orchestration_error_asks_once_more(tmp_path):
    """Only the reminder is sent again, to the same conversation."""
    play = Play(tmp_path, recipe_harness.RECIPE, {"*": "Hm."})
    await play.run()
    play.say({"review.reminder": says("no-issues"), **_commit()})
    _resumed(play, [1])

    assert await play.run() is RunState.DONE
    assert [(prompt.key, prompt.attempt) for prompt in play.prompts] == [("review.reminder", 2), ("commit", 1)]
    assert [note["reason"] for note in play.notes("recipe:exited")] == ["orchestration-error", "changes-committed"]


async def test_a_resume_with_a_higher_limit_allows_the_refused_step(tmp_path):
    """No step is repeated, and the refused one is now allowed."""
    play = Play(tmp_path, recipe_harness.RECIPE, {**ONE_LOOP, **_commit()}, {"max_steps": 3})

    assert await play.run() is RunState.FAILED
    _resumed(play, [], {"args": {"backend": "script", "max_steps": 4}})
    assert await play.run() is RunState.DONE
    assert [prompt.key for prompt in play.prompts] == ["commit"]


async def test_each_failure_of_a_resumed_run_has_its_event(tmp_path):
    """Each end of a resumed run has its own event."""
    play = Play(tmp_path, recipe_harness.RECIPE, {"*": {"error": {"code": "c", "message": "It died."}}})
    await play.run()
    _resumed(play, [0])

    assert await play.run() is RunState.FAILED
    assert [note["reason"] for note in play.notes("recipe:exited")] == ["backend-error", "backend-error"]
