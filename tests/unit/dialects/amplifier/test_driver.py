"""Tests of the driver: steps, variables, conditions, failures and the state of a run."""

from __future__ import annotations

import json

import hypothesis
import pytest
from hypothesis import strategies as st

from app.domain import records
from app.domain.states import RunState, StepState
from tests.examples import examples
from tests.unit.dialects.amplifier import recipe_harness
from tests.unit.dialects.amplifier.recipe_harness import DIALECT, broke, later, printed, ran, recipe, staged, step

LONG = "long text " * 8_000

# -- variables


async def test_steps_in_order():
    """Steps run in the order of the file, and later prompts contain the outputs of earlier steps."""
    run = await ran(
        recipe(
            step("a", prompt="Look at {{file}}.", output="seen"),
            step("b", prompt="Improve: {{seen}}"),
            context={"file": ""},
        ),
        {"a": "It is long."},
        file="a.py",
    )

    assert run.prompts == {"a": "Look at a.py.", "b": "Improve: It is long."}
    assert run.slots == {"seen": "It is long."}
    assert (run.manifest["status"], run.manifest["current_step_index"], run.manifest["total_steps"]) == ("done", 2, 2)
    assert run.manifest["ending"] == {"reason": "completed", "partial": False, "failed_steps": []}


async def test_secrets_reach_commands():
    """A command gets only the secrets that the recipe and its step name, also as texts."""
    one = {"type": "bash", "command": "true", "secrets": ["B", "A"], "env": {"B": "text", "C": "plain"}}
    document = later(step("one", **one), step("two", type="bash", command="true"), secrets=["A"])
    run = await ran(document, {"one": printed(""), "two": printed("")})
    hidden = DIALECT.secrets(document)

    assert (run.stub.operations["one"].secrets, run.stub.operations["two"].secrets) == (("A", "B"), ("A",))
    assert (hidden.names, hidden.texts) == ({"A", "B"}, {"text"})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("recipe.name", "small"),
        ("recipe.version", "1.0.0"),
        ("recipe.description", "A small one."),
        ("session.id", "20260210T143000Z-abcdef"),
        ("session.started", "2026-02-10T14:30:00.000Z"),
        ("session.project", "workspace-my-project"),
        ("step.id", "second"),
        ("step.index", "1"),
    ],
)
async def test_reserved_variables(name, expected):
    """Each reserved variable of the document has a value in every step."""
    run = await ran(recipe(step("first"), step("second", prompt=f"<{{{{{name}}}}}>")))

    assert run.prompt("second") == f"<{expected}>"


async def test_step_outputs_come_before_the_context():
    """A variable of the context is valid until a step sets it; arguments override the context."""
    document = recipe(step("a", prompt="{{x}}"), step("b", output="x"), step("c", prompt="{{x}}"), context={"x": "old"})
    run = await ran(document, {"b": "new"})
    other = await ran(document, {"b": "new"}, x="given")

    assert (run.prompt("a"), run.prompt("c")) == ("old", "new")
    assert (other.prompt("a"), other.prompt("c")) == ("given", "new")


async def test_replies_that_are_json_are_data():
    """Dots lead into a JSON reply, to any depth."""
    said = '```json\n{"severity": "high", "issues": [{"at": {"line": 3}}]}\n```'
    run = await ran(
        recipe(step("a", output="found"), step("b", prompt="{{found.severity}} in line {{found.issues.0.at.line}}")),
        {"a": said},
    )

    assert run.prompt("b") == "high in line 3"
    assert json.loads(run.slots["found"]) == {"severity": "high", "issues": [{"at": {"line": 3}}]}


async def test_parse_json_decides_how_a_reply_is_read():
    """`parse_json: true` finds JSON among words and fails without any; `false` leaves even JSON as text."""
    document = later(
        step("a", output="x", parse_json=True),
        step("b", output="y", parse_json=False),
        step("c", prompt="{{x.n}} {{y}}"),
    )
    run = await ran(document, {"a": 'It is {"n": 1}.', "b": '{"n": 2}'})
    failed = await ran(document, {"a": "It is nothing."})

    assert run.prompt("c") == '1 {"n": 2}'
    assert (failed.manifest["status"], failed.error["code"], failed.error["key"]) == ("failed", "not_json", "a")
    assert failed.statuses() == {"a": "done", "a:result": "failed"}
    failed.replies["a"] = '{"n": 3}'
    assert await failed.resume() is RunState.DONE
    assert failed.prompt("c").startswith("3 ")


async def test_replies_that_must_fit():
    """With `reply_schema` the agent gets the schema; a reply that does not fit fails the step; a resume asks again."""
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    run = await ran(
        later(step("a", reply_schema=schema, output="x"), step("b", prompt="{{x.n}}")), {"a": '{"n": "many"}'}
    )

    assert run.stub.operations["a"].reply_schema == schema
    assert (run.error["code"], run.error["key"]) == ("reply_unfit", "a")
    assert "$.n must be a whole number, not a text" in run.error["message"]
    run.replies["a"] = 'There: {"n": 3}'
    assert await run.resume() is RunState.DONE
    assert run.prompt("b") == "3"


async def test_long_replies_are_not_copied():
    """A prompt refers to a long reply by its blob."""
    run = await ran(recipe(step("a", output="x"), step("b", prompt="See {{x}}!")), {"a": LONG})
    call = run.stub.operations["b"]

    assert call.prompt[0] == "See "
    assert call.prompt[1]["blob"]["size_bytes"] == len(LONG)
    assert run.disk.files["cache.json"]["x"]["blob"]["size_bytes"] == len(LONG)


async def test_an_undefined_variable_fails_the_step():
    """The error names the variable and the known ones; with the variable given, the run can be resumed there."""
    run = await ran(
        recipe(
            step("a", output="analysis"),
            step("b", condition="{{analysis}} == 'bad'", output="fixes"),
            step("c", prompt="{{fixes}}"),
            context={"severity": "low"},
        ),
        {"a": "good"},
    )

    assert (run.error["code"], run.error["key"]) == ("undefined_variable", "c")
    assert "Undefined variable in step: {{fixes}}. Available: severity, analysis" in run.error["message"]
    assert await run.resume(args={"severity": "low", "fixes": "none"}) is RunState.DONE
    assert run.prompt("c") == "none"
    assert [key for key, _ in run.stub.asked] == ["a", "c"]


# -- conditions


@pytest.mark.parametrize(("severity", "taken"), [("critical", True), ("low", False)])
async def test_conditions_that_hold_and_do_not(severity, taken):
    """A step whose condition is true runs; otherwise it is skipped, and the next one follows."""
    condition = "{{severity}} == 'critical'"
    run = await ran(
        recipe(step("fix", condition=condition), step("report"), context={"severity": ""}), severity=severity
    )

    assert run.statuses() == {"fix": "done" if taken else "skipped", "report": "done"}
    assert run.skipped == (
        [] if taken else [{"id": "fix", "reason": "condition evaluated to false", "condition": condition}]
    )


async def test_an_undefined_variable_in_a_condition_fails_the_run():
    """The message is the document's, for any value of `on_error`; no later step runs."""
    run = await ran(
        recipe(
            step("a", condition="{{severity}} == 'high'", output="missing"),
            step("critical-fix", condition="{{missing}} == 'x'", on_error="continue"),
            step("report"),
            context={"severity": "low"},
        )
    )

    assert run.manifest["status"] == "failed"
    assert run.error["message"] == (
        "Step 'critical-fix' condition error: Undefined variable in condition: {{missing}}. Available: severity"
    )
    assert run.statuses() == {"a": "skipped", "critical-fix": "failed"}


async def test_a_condition_that_cannot_be_decided_fails_the_run():
    """A comparison of the order of words is an error of the recipe."""
    run = await ran(later(step("a", condition="{{n}} > 3"), context={"n": "many"}))

    assert (run.error["code"], run.error["key"]) == ("undecidable_condition", "a")


# -- failures


async def test_a_failed_step_ends_the_run():
    """Without `on_error` the first failure ends the run; a resume repeats that step alone."""
    run = await ran(recipe(step("a"), step("b", output="x"), step("c", prompt="{{x}}")), {"b": broke()})

    assert (run.manifest["status"], run.error["code"], run.error["key"]) == ("failed", "agent_error", "b")
    assert run.manifest["ending"] == {"reason": "agent_error", "partial": False, "failed_steps": ["b"]}
    run.replies["b"] = "fine"
    assert await run.resume() is RunState.DONE
    assert [key for key, _ in run.stub.asked] == ["a", "b", "b", "c"]


async def test_continue_runs_the_next_step_after_a_failure():
    """With `continue` the next step follows, and the run is done in part and names the failed step."""
    run = await ran(recipe(step("a", on_error="continue", output="x"), step("b")), {"a": broke()})

    assert run.statuses() == {"a": "failed", "b": "done"}
    assert run.manifest["ending"] == {"reason": "completed", "partial": True, "failed_steps": ["a"]}
    assert [event.data["event"] for event in run.disk.events if event.type == "recipe.note"] == ["step:failed"]


async def test_skip_remaining_ends_the_run_well():
    """With `skip_remaining` no further step runs, and the run is done in part."""
    run = await ran(recipe(step("a"), step("b", on_error="skip_remaining"), step("c"), step("d")), {"b": broke()})

    assert run.statuses() == {"a": "done", "b": "failed", "c": "skipped", "d": "skipped"}
    assert run.manifest["status"] == "done"
    assert run.manifest["ending"] == {"reason": "skipped_remaining", "partial": True, "failed_steps": ["b"]}
    assert [one["id"] for one in run.skipped] == ["c", "d"]


# -- retries and limits


@pytest.mark.parametrize(
    ("retry", "delays"),
    [
        ({"max_attempts": 5, "initial_delay": 10, "max_delay": 300}, [10, 20, 40, 80]),
        ({"max_attempts": 5, "initial_delay": 10, "max_delay": 25}, [10, 20, 25, 25]),
        ({"max_attempts": 5, "backoff": "linear", "initial_delay": 10}, [10, 20, 30, 40]),
        ({"max_attempts": 4, "backoff": "linear", "initial_delay": 10, "max_delay": 15}, [10, 15, 15]),
        ({}, [5, 10]),
        ({"max_attempts": 1}, []),
        ({"max_attempts": 3, "initial_delay": 0}, [0, 0]),
    ],
)
async def test_delays_of_retries(retry, delays):
    """Delays double, or grow by the first one, up to the longest; the default is three attempts."""
    run = await ran(recipe(step("a", retry=retry)), {"a": broke("rate_limited")})

    assert run.manifest["status"] == "failed"
    assert run.clock.slept == delays
    assert [attempt for _, attempt in run.stub.asked] == list(range(1, len(delays) + 2))


@pytest.mark.parametrize(
    "code", ["rate_limited", "agent_timeout", "agent_idle", "backend_unavailable", "model_crashed"]
)
async def test_errors_that_pass_are_retried(code):
    """Errors of network, time and rate limits are retried; the driver sees only the last one."""
    run = await ran(recipe(step("a", retry={}, output="x")), {"a": [broke(code), "fine"]})

    assert (run.manifest["status"], run.slots) == ("done", {"x": "fine"})


@pytest.mark.parametrize(
    "code", ["agent_error", "empty_reply", "unauthorized", "prompt_too_large", "undefined_variable"]
)
async def test_other_errors_are_not_retried(code):
    """Failures of agents and of validation are final at once."""
    run = await ran(recipe(step("a", retry={"max_attempts": 5})), {"a": broke(code)})

    assert (run.manifest["status"], len(run.stub.asked)) == ("failed", 1)


@pytest.mark.parametrize(("given", "expected"), [({}, 600), ({"timeout": 300}, 300)])
async def test_time_outs(given, expected):
    """Each attempt has the step's time-out, by default ten minutes."""
    run = await ran(recipe(step("a", **given)))

    assert run.stub.operations["a"].timeout_seconds == expected


# -- agents


async def test_how_an_agent_is_asked():
    """Mode, settings and preferences of a step change the agent's call; an unknown setting is reported."""
    run = await ran(
        later(
            step("a", mode="ANALYZE"),
            step("b", agent_config={"role": "You are brief.", "temperature": 0.8}, model="opus", max_tokens=99),
            step("c", provider="codex"),
        )
    )
    asked = run.stub.operations
    (note,) = [event.data for event in run.disk.events if event.type == "recipe.note"]

    assert run.prompt("a") == "MODE: ANALYZE\n\nDo it."
    assert (asked["a"].backend, asked["a"].model, asked["a"].system) == ("script", "small", "You help.")
    assert (asked["b"].model, asked["b"].system, asked["b"].max_tokens) == ("opus", "You are brief.", 99)
    assert (asked["c"].backend, asked["c"].model) == ("codex", None)
    assert note == {"event": "step:settings_ignored", "settings": ["temperature"]}


async def test_preferences_are_tried_in_order():
    """A backend that cannot be reached is skipped; one that gave a bad answer is not."""
    preferred = [{"provider": "one"}, {"provider": "two", "model": "m"}, {"provider": "three"}]
    document = later(step("a", provider_preferences=preferred, output="x"))
    run = await ran(document, {"a": broke("unknown_backend"), "a.preference2": "second"})
    bad = await ran(document, {"a": broke("agent_error")})
    none = await ran(document, dict.fromkeys(["a", "a.preference2", "a.preference3"], broke("backend_unavailable")))

    assert run.slots == {"x": "second"}
    assert [run.stub.operations[key].backend for key, _ in run.stub.asked] == ["one", "two"]
    assert (bad.manifest["status"], len(bad.stub.asked)) == ("failed", 1)
    assert (none.manifest["status"], len(none.stub.asked)) == ("failed", 3)
    none.replies["a"] = "first"
    assert await none.resume() is RunState.DONE
    assert none.slots == {"x": "first"}


async def test_rate_limiting():
    """Prompts are delayed, and those refused for their rate are tried again."""
    limits = {"min_delay_ms": 1500, "backoff": {"initial_delay_ms": 500, "multiplier": 3, "max_attempts": 3}}
    run = await ran(
        later(step("a"), step("b", output="x"), rate_limiting=limits), {"b": [broke("rate_limited")] * 2 + ["fine"]}
    )

    assert [key for key, _ in run.stub.asked] == ["a", "b.delay", "b", "b", "b"]
    assert run.stub.operations["b.delay"].seconds == 1.5
    assert run.clock.slept == [0.5, 1.5]
    assert run.slots == {"x": "fine"}


# -- commands


async def test_commands():
    """A command's output is its result; bash gets values as variables, never as code."""
    made = {"id": "a", "type": "bash", "command": 'grep "{{what}}" {{what}} {{n.x}}', "env": {"OUT": "<{{what}}>"}}
    run = await ran(
        later(
            {**made, "output": "found", "timeout": 9},
            step("b", prompt="{{found}}"),
            context={"what": "", "n": {"x": 1}},
        ),
        {"a": printed("one\ntwo\n\n")},
        what='$(rm -rf /) "; ls',
    )
    command = run.stub.operations["a"]

    assert command.argv == ("bash", "-c", 'grep "${RECIPE_VALUE_1}" "${RECIPE_VALUE_1}" "${RECIPE_VALUE_2}"')
    assert command.env == {"OUT": '<$(rm -rf /) "; ls>', "RECIPE_VALUE_1": '$(rm -rf /) "; ls', "RECIPE_VALUE_2": "1"}
    assert (command.timeout_seconds, command.exit_codes, command.cwd) == (9, (0,), ".")
    assert run.prompt("b") == "one\ntwo"


async def test_exit_codes():
    """An exit code fails the step unless the recipe asks for it; then conditions can use it."""
    failing = records.Result(
        status=StepState.FAILED, output=printed("", 3), error=records.StepError(code="exit_code", message="code 3")
    )
    bash = {"id": "a", "type": "bash", "command": "false"}
    run = await ran(later(bash, step("b")), {"a": failing})
    asked = await ran(
        later({**bash, "output_exit_code": "code"}, step("b", condition="{{code}} == 3")), {"a": printed("", 3)}
    )

    assert (run.manifest["status"], run.error["code"]) == ("failed", "exit_code")
    assert asked.statuses() == {"a": "done", "b": "done"}
    assert 255 in asked.stub.operations["a"].exit_codes


async def test_commands_are_retried():
    """The reason for a command's failure is unknown, so every exit code and a time-out are retried."""
    failing = records.Result(
        status=StepState.FAILED, output=printed("", 3), error=records.StepError(code="exit_code", message="code 3")
    )
    run = await ran(later({"id": "a", "type": "bash", "command": "x", "retry": {}}), {"a": [failing, printed("ok")]})

    assert run.manifest["status"] == "done"


# -- recipes in recipes

CHILD = {
    "id": "a",
    "type": "recipe",
    "recipe": "other",
    "context": {"target": "{{file}}", "all": "{{files}}"},
    "output": "x",
}


def _ended(slots, status="done", partial=False):
    shown = {name: {"type": "artifact", "text": text} for name, text in slots.items()}
    ending = {"reason": "completed", "partial": partial, "failed_steps": []}
    return {"run_id": "r", "status": status, "ending": ending, "error": None, "slots": shown}


async def test_a_sub_recipe_gets_only_its_context():
    """A sub-recipe gets only its `context`; its variables, or its `final_output`, are the step's result."""
    document = later(CHILD, step("b", prompt="{{x}}"), context={"file": "f.py", "files": ["a", "b"], "secret": "s"})
    run = await ran(document, {"a": _ended({"report": "fine", "data": '{"n": 1}'})})
    final = await ran(document, {"a": _ended({"report": "fine", "final_output": '{"n": 2}'})})
    call = run.stub.operations["a"]

    assert (call.recipe_id, call.args) == ("other", {"target": "f.py", "all": ["a", "b"]})
    assert json.loads(run.prompt("b")) == {"report": "fine", "data": {"n": 1}}
    assert final.prompt("b") == '{"n":2}'


async def test_a_payload_of_a_pipeline_is_handed_on_as_its_pointer():
    """A slot that refers to a receipt is an object that names it; an empty text would say that nothing was found."""
    child = _ended({"report": "fine"})
    child["slots"]["found"] = {"type": "pointer", "receipt_id": "rcpt_1", "sha256": "0" * 64, "summary": "3 matches"}
    document = later(CHILD, step("b", prompt="{{x.found.receipt_id}}: {{x.found.summary}}, {{x.report}}"))
    run = await ran(document | {"context": {"file": "f", "files": []}}, {"a": child})

    assert run.prompt("b") == "rcpt_1: 3 matches, fine"


async def test_recipes_that_fail_and_that_are_partial():
    """A failed sub-recipe fails its step; one that is done in part makes the run partial."""
    document = later(CHILD, context={"file": "f", "files": []})
    failing = records.Result(
        status=StepState.FAILED, output=_ended({}, "failed"), error=records.StepError(code="child_failed", message="no")
    )
    failed = await ran(document, {"a": failing})
    partial = await ran(document, {"a": _ended({}, partial=True)})

    assert (failed.manifest["status"], failed.error["code"]) == ("failed", "child_failed")
    assert partial.manifest["ending"]["partial"] is True


async def test_a_recipe_without_its_result_fails_the_step_that_needs_it():
    """A step fails if it keeps the result of a sub-recipe that has not set it; the other variables never replace it."""
    child = _ended({"notes": "internal"})
    child["ending"]["missing_result"] = "verdict"
    needs = later(CHILD, step("b", prompt="{{x}}"), context={"file": "f", "files": []})
    handled = later(CHILD | {"on_error": "continue"}, needs["steps"][1], context={"file": "f", "files": []})
    ignores = {name: value for name, value in CHILD.items() if name != "output"}
    ignored = await ran(later(ignores, context={"file": "f", "files": []}), {"a": child})
    failed, continued = await ran(needs, {"a": child}), await ran(handled, {"a": child})

    assert (failed.error["code"], failed.error["key"]) == ("result_missing", "a")
    assert "no step has set `verdict`" in failed.error["message"]
    assert failed.statuses() == {"a": "done", "a:result": "failed"}
    assert continued.prompt("b") == "null"
    assert ignored.manifest["status"] == "done"


@pytest.mark.parametrize(
    "keeps", [{"output": "x"}, {"foreach": "{{files}}", "collect": "x"}], ids=["output", "collect"]
)
@pytest.mark.parametrize("body", ["steps", "substeps"])
async def test_a_recipe_without_its_result_fails_in_a_group_that_keeps_it(keeps, body):
    """A sub-step fails without the result of its recipe if a step around it keeps that result, and only then."""
    ignores = {name: value for name, value in CHILD.items() if name != "output"}
    child = _ended({"notes": "internal"})
    child["ending"]["missing_result"] = "verdict"
    key = "g[0].a" if "foreach" in keeps else "g.a"
    group, more = {"id": "g", body: [ignores]}, {"context": {"file": "f", "files": ["q"]}}
    kept = await ran(later(group | keeps, **more), {key: child})
    ignored = await ran(later(group, **more), {"g.a": child})

    assert (kept.error["code"], kept.error["key"]) == ("result_missing", key)
    assert ignored.manifest["ending"]["partial"] is False


async def test_a_long_result_of_a_recipe_fails_only_a_step_that_keeps_it():
    """A variable that is too long to be taken over does not fail a step without `output`."""
    child = _ended({})
    child["slots"]["report"] = {"type": "artifact", "text": None, "blob": {"sha256": "0" * 64, "size_bytes": 70_000}}
    ignores = {name: value for name, value in CHILD.items() if name != "output"}
    kept, ignored = [
        await ran(later(one, context={"file": "f", "files": []}), {"a": child}) for one in (CHILD, ignores)
    ]

    assert (kept.error["code"], ignored.manifest["status"]) == ("output_too_large", "done")


async def test_a_resumed_step_has_all_its_attempts_again():
    """A step that has used up its retries is retried as often after a resume, with the same delays."""
    run = await ran(later(step(retry={"max_attempts": 2, "initial_delay": 7})), {"a": broke("rate_limited")})
    run.replies["a"] = [broke("rate_limited")] * 3 + ["said"]

    assert await run.resume() is RunState.DONE, run.error
    assert run.stub.asked == [("a", 1), ("a", 2), ("a", 3), ("a", 4)]
    assert run.clock.slept == [7, 7]


async def test_recursion_has_limits():
    """A run too deep below others starts none, and a run makes no more steps than allowed."""
    deep = recipe_harness.Run(later(CHILD, context={"file": "f", "files": []}, recursion={"max_depth": 2}), depth=2)
    await deep.run()
    looped = step("a", foreach="{{l}}")
    many = await ran(later(looped, context={"l": [1, 2, 3]}, recursion={"max_total_steps": 2}))

    assert (deep.error["code"], deep.error["key"], deep.stub.asked) == ("recursion_limit", "a", [])
    assert (many.error["code"], many.error["key"]) == ("recursion_limit", "a[2]")


# -- stages


def _approval(**more):
    return {"required": True, "prompt": "Go on with {{x}}?", **more}


STAGED = staged(
    {"name": "look", "steps": [step("a", output="x")], "approval": _approval(timeout=3600, output="answer")},
    {"name": "act", "steps": [step("b", prompt="{{approval.message}}|{{answer.decision}}|{{approval.by_default}}")]},
)


async def test_an_approval_lets_the_flow_continue():
    """A person is asked after the stage; later steps can name the answer's message."""
    run = await ran(
        STAGED, {"a": "plan", "approval:look": {"decision": "approve", "message": "be quick", "by_default": False}}
    )
    gate = run.stub.operations["approval:look"]

    assert (gate.prompt, gate.options, gate.default, gate.expires_seconds) == (
        "Go on with plan?",
        ("approve", "deny"),
        "deny",
        3600.0,
    )
    assert gate.shown_sha256
    assert run.prompt("b") == "be quick|approve|false"
    assert [key for key, _ in run.stub.asked] == ["a", "approval:look", "b"]


@pytest.mark.parametrize("by_default", [True, False])
async def test_a_denial_is_final(by_default):
    """A denied approval fails the run; each resume fails again, and no later step ever runs."""
    denial = {"decision": "deny", "message": "no", "by_default": by_default}
    run = await ran(STAGED, {"approval:look": denial})

    assert (run.manifest["status"], run.error["code"]) == ("failed", "approval_denied")
    run.replies["approval:look"] = {"decision": "approve", "message": "", "by_default": False}
    for _ in range(2):
        assert await run.resume() is RunState.FAILED
    assert [key for key, _ in run.stub.asked] == ["a", "approval:look"]


async def test_an_approval_can_precede_its_stage_or_be_off():
    """An approval may come before its stage, wait for ever, approve by default, or be switched off."""
    run = await ran(
        staged(
            {"name": "one", "steps": [step("a")], "approval": _approval(prompt="1?", when="before")},
            {"name": "two", "steps": [step("b")], "approval": {"required": False, "prompt": "2?"}},
            {"name": "three", "steps": [step("c")], "approval": _approval(prompt="3?", timeout=5, default="approve")},
        )
    )
    first, third = run.stub.operations["approval:one"], run.stub.operations["approval:three"]

    assert [key for key, _ in run.stub.asked] == ["approval:one", "a", "b", "c", "approval:three"]
    assert (first.default, first.expires_seconds) == (None, None)
    assert (third.default, third.expires_seconds) == ("approve", 5.0)
    assert run.manifest["total_steps"] == 3


async def test_skip_remaining_asks_for_no_approval():
    """Skipped steps need no approval."""
    run = await ran(
        staged(
            {"name": "one", "steps": [step("a", on_error="skip_remaining")], "approval": _approval(prompt="1?")},
            {"name": "two", "steps": [step("b")]},
        ),
        {"a": broke()},
    )

    assert run.statuses() == {"a": "failed", "b": "skipped"}


async def test_final_output():
    """The result of a run is the variable named by the recipe."""
    run = await ran(later(step("a", output="x"), step("b", output="y"), final_output="x"), {"a": "result"})

    assert run.slots["final_output"] == "result"
    assert "missing_result" not in run.manifest["ending"]


async def test_a_missing_result_is_shown():
    """A run whose result was never set is done, and its ending names the variable."""
    document = later(step("a", condition="{{y}} == 'no'", output="x"), context={"y": "yes"}, final_output="x")
    run = await ran(document)

    assert (run.manifest["status"], run.manifest["ending"]["missing_result"]) == ("done", "x")
    assert "final_output" not in run.slots


# -- values are never code


_HOSTILE = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["x' or 'a' == 'a", "}}{{secret}}", "{{secret}}", "' == 'x' or {{secret}}", '"; or "', "\\{{x}}"]),
)


@hypothesis.settings(max_examples=examples(30), deadline=None)
@hypothesis.given(_HOSTILE)
def test_a_value_changes_neither_condition_nor_prompt(value):
    """An argument or a reply is in prompts unchanged, and conditions only compare it."""
    import asyncio

    document = later(
        step("a", output="said", parse_json=False),
        step("b", condition="{{said}} == 'critical' and {{given}} != ''", prompt="<{{given}}|{{said}}>"),
        step("c", prompt="<{{given}}|{{said}}>"),
        context={"given": "", "secret": "hidden"},
    )
    said = value or "nothing"
    run = asyncio.run(ran(document, {"a": said}, given=value))
    plainly = said.encode("utf-8", "replace").decode()
    given = value.encode("utf-8", "replace").decode()

    assert run.statuses()["b"] == ("done" if plainly == "critical" and given else "skipped")
    assert run.prompt("c") == f"<{given}|{plainly}>"
