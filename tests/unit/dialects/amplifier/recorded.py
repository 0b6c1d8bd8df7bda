"""Runs of amplifier recipes whose recordings are kept for good, each with one control line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app.domain import records
from app.domain.states import StepState
from tests.unit.dialects.amplifier import recipe_harness
from tests.unit.dialects.amplifier.recipe_harness import broke, later, printed, recipe, staged, step

LONG = "long text " * 8_000

_FIRST = step("first", prompt="Begin with {{x}}.", output="seen")
_CONTEXT = {"x": "a word", "rows": [{"cells": ["a", "b"]}, {"cells": ["c"]}], "score": 0, "draft": "none"}
_APPROVAL = {"required": True, "prompt": "Go on with {{seen}}?", "timeout": 60, "output": "answer"}


def _with(*steps: Any, **more: Any) -> dict[str, Any]:
    return later(_FIRST, *steps, **{"context": _CONTEXT, **more})


_GROUP = {
    "id": "each",
    "foreach": "{{rows}}",
    "as": "row",
    "index_as": "n",
    "collect": "all",
    "substeps": [
        step("look", prompt="{{n}}: {{row.cells}}", output="found"),
        step("mend", condition="{{found}} == 'bad'", prompt="Mend {{row.cells.0}}."),
    ],
}
_NESTED = step(
    "cells",
    foreach="{{rows}}",
    nested_foreach={"foreach": "{{row.cells}}", "as": "cell", "break_if": "{{cell}} == 'a'"},
    prompt="{{cell}}",
    collect="cells",
    **{"as": "row"},
)
_WHILE = step(
    "refine",
    while_condition="{{score}} < 4",
    prompt="{{draft}}",
    output="review",
    update_context={"draft": "{{review.text}}", "score": "{{review.score}}"},
    break_when="{{review.text}} == 'enough'",
)
_COMMAND = {"id": "list", "type": "bash", "command": 'ls "{{x}}"', "output": "names", "output_exit_code": "code"}
_CHILD = {"id": "child", "type": "recipe", "recipe": "other", "context": {"y": "{{seen}}"}, "output": "made"}
_UNKEPT = {name: value for name, value in _CHILD.items() if name != "output"}
_ENDED = {
    "run_id": "r",
    "status": "done",
    "ending": {"reason": "completed", "partial": True, "failed_steps": []},
    "error": None,
    "slots": {"final_output": {"type": "artifact", "text": '{"n": 1}'}},
}
_WITHOUT_RESULT = {
    **_ENDED,
    "ending": {"reason": "completed", "partial": False, "failed_steps": [], "missing_result": "verdict"},
    "slots": {"notes": {"type": "artifact", "text": "internal"}},
}
_EXITED = records.Result(
    status=StepState.FAILED, output=printed("", 3), error=records.StepError(code="exit_code", message="code 3")
)

FIRST = frozenset(
    (
        "straight", "conditions", "loops", "commands_and_recipes", "failed_command", "approved", "denied", "paced",
        "continued", "skipped_rest", "undefined", "not_a_list", "long_reply",
    )
)  # fmt: skip
"""The runs that the first version of the driver began."""

SECOND = frozenset(("quoted", "left_null", "json_asked", "steps_of_loops"))
"""The runs that the second version of the driver began."""

THIRD = frozenset(("unusable_results", "outputs_of_loops", "stale_variables"))
"""The runs that the third version of the driver began."""

_PASSED = (
    _with(
        {
            "id": "each",
            "foreach": "{{rows}}",
            "as": "row",
            "steps": [
                {
                    "id": "group",
                    "continue_on_error": True,
                    "substeps": [step("look", output="found"), step("use", prompt="{{found}}")],
                }
            ],
        },
        {"id": "list", "type": "bash", "command": "ls", "foreach": "{{rows}}", "on_error": "continue"}
        | {"output_exit_code": "code"},
        step(
            "refine",
            while_condition="{{score}} < 2",
            output="review",
            on_error="continue",
            update_context={"score": "{{_loop_iteration}}"},
            break_when="{{review}} != 'good'",
        ),
        {"id": "both", "on_error": "continue", "output": "made", "substeps": [_UNKEPT]},
        step("last", prompt="{{found}} {{code}} {{score}} {{made}}"),
    ),
    {
        "each[1].group.look": broke(),
        "list[1]": broke("timeout"),
        "refine[0]": broke(),
        "both.child": _WITHOUT_RESULT,
    },
)
"""Failures that a run passes, and what they leave in variables."""

RUNS: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "straight": (
        recipe(_FIRST, step("second", mode="REVIEW", prompt="{{seen.deep}} {{recipe.name}}"), context={"x": "a word"}),
        {"first": '{"deep": 1}'},
    ),
    "conditions": (
        recipe(
            _FIRST,
            step("fix", condition="{{seen}} == 'bad' or {{x}} == 'q' and {{x}} != 'r'"),
            step("tell", condition="{{seen}} != 'bad'", prompt="{{seen}}"),
            context={"x": "a word"},
        ),
        {"first": "good"},
    ),
    "loops": (
        _with(_GROUP, _NESTED, _WHILE, step("after", prompt="{{all}} {{cells}} {{draft}}")),
        {
            "each[0].look": "bad",
            "refine[0]": json.dumps({"text": "better", "score": 2}),
            "refine[1]": json.dumps({"text": "good", "score": 5}),
        },
    ),
    "commands_and_recipes": (
        _with(_COMMAND, _CHILD, step("after", prompt="{{names}} {{code}} {{made.n}}"), final_output="made"),
        {"list": printed("one\ntwo\n", 2), "child": _ENDED},
    ),
    "failed_command": (_with({"id": "list", "type": "bash", "command": "false"}), {"list": _EXITED}),
    "approved": (
        staged(
            {"name": "look", "steps": [_FIRST], "approval": _APPROVAL},
            {"name": "act", "steps": [step("act", prompt="{{approval.message}} {{answer.decision}}")]},
            context={"x": "a word"},
        ),
        {"approval:look": {"decision": "approve", "message": "be quick", "by_default": False}},
    ),
    "denied": (
        staged({"name": "look", "steps": [_FIRST], "approval": _APPROVAL}, context={"x": "a word"}),
        {"approval:look": {"decision": "deny", "message": "", "by_default": True}},
    ),
    "paced": (
        _with(
            step("second", provider_preferences=[{"provider": "one"}, {"provider": "two"}]),
            rate_limiting={"min_delay_ms": 1500},
        ),
        {"second": broke("unknown_backend")},
    ),
    "continued": (_with(step("second", on_error="continue"), step("third")), {"second": broke()}),
    "skipped_rest": (_with(step("second", on_error="skip_remaining"), step("third")), {"second": broke()}),
    "undefined": (
        _with(step("second", condition="{{seen}} == 'q'", output="later"), step("third", prompt="{{later}}")),
        {},
    ),
    "not_a_list": (_with(step("second", foreach="{{seen}}")), {}),
    "quoted": (
        _with(
            {"id": "list", "type": "bash", "command": "ls {{x}} 'in {{x}}' # it's {{x}}", "output": "names"},
            {"id": "write", "type": "bash", "command": "cat <<'EOF'\n$ {{x}} `\nEOF"},
        ),
        {"list": printed("one\n")},
    ),
    "left_null": (
        _with(
            step("each", foreach="{{rows}}", on_error="continue", collect="all"),
            {"id": "list", "type": "bash", "command": "false", "on_error": "continue", "output": "names"},
            step("second", on_error="continue", output="lost"),
            step("third", prompt="{{all}} {{names}} {{lost}}"),
        ),
        {"each[0]": broke(), "list": _EXITED, "second": broke()},
    ),
    "json_asked": (
        _with(step("second", parse_json=True, output="data"), step("third", prompt="{{data.b}}"), final_output="data"),
        {"second": 'Not {"a": 1} but {"b": [1, 2, 3]}.'},
    ),
    "steps_of_loops": (
        _with(
            {
                "id": "each",
                "while_condition": "{{score}} < 5",
                "max_while_iterations": 9,
                "update_context": {"score": "{{_loop_iteration}}"},
                "break_when": "{{score}} >= 2",
                "steps": [step("look", prompt="{{_loop_index}}", output="found"), step("judge", prompt="{{found}}")],
                "collect": "all",
            },
            {"id": "child", "type": "recipe", "recipe": "other", "context": {"y": "{{all}}"}, "timeout": 60},
        ),
        {"child": _ENDED},
    ),
    "long_reply": (_with(step("second", prompt="See {{seen}}!")), {"first": LONG}),
    "unusable_results": (
        _with(
            step("second", parse_json=True, on_error="continue", output="data"),
            _CHILD | {"on_error": "continue"},
            step("third", prompt="{{data}} {{made}}"),
        ),
        {"second": "no JSON", "child": _WITHOUT_RESULT},
    ),
    "stale_variables": _PASSED,
    "cleared_variables": _PASSED,
    "outputs_of_loops": (
        _with(
            step("each", foreach="{{rows}}", prompt="{{row}}", output="row", **{"as": "row"}),
            step("last", prompt="{{row}}"),
        ),
        {},
    ),
}
"""The recipes, with the replies to their steps."""


def made(name: str) -> Callable[[Path], recipe_harness.Run]:
    """Return a function that makes a run anew, independently of its folder."""

    def make(_: Path) -> recipe_harness.Run:
        document, replies = RUNS[name]
        earlier = (version for version, names in enumerate((FIRST, SECOND, THIRD), start=1) if name in names)
        version = next(earlier, recipe_harness.DIALECT.driver_version)
        run = recipe_harness.Run(document, driver_version=version)
        run.replies.update(replies)
        return run

    return make
