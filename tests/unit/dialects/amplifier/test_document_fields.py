"""Every field and constraint of the document: its examples are valid, and each violation of a constraint is a fault."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.domain import library
from tests.unit.dialects.amplifier import recipe_harness
from tests.unit.dialects.amplifier.recipe_harness import later, recipe, step

HELPER = library.Agent(id="helper", archetype="helper", tier="t3", backend="local")
CONTEXT: dict[str, Any] = {
    "files": ["a.py"],
    "severity": "high",
    "status": "pending",
    "security_passed": "true",
    "tests_passed": "true",
    "review_approved": "true",
    "analysis": {"severity": "critical", "issues": ["x"]},
    "analysis_result": "fine",
    "report": {"severity": "critical"},
    "results": {"files": ["a.py"]},
    "a": "x",
    "b": "y",
    "c": "z",
}
TOOLS = {
    "providers": [{"module": "provider-anthropic", "config": {"temperature": 0.8, "model": "claude-opus-4"}}],
    "tools": [{"module": "tool-web-search"}],
}


def _flaws(document: Any) -> list[tuple[str, str]]:
    found = recipe_harness.DIALECT.flaws(json.dumps(document), "file", library.Library(agents=(HELPER,)))
    return [(flaw.path, flaw.code) for flaw in found]


# -- the recipe


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("name", "code-review-flow", id="name: hyphens"),
        pytest.param("name", "dependency_upgrade", id="name: underscores"),
        pytest.param("name", "2nd-flow", id="name: alphanumeric"),
        pytest.param("name", "x" * 100, id="name: max length 100"),
        pytest.param("description", "x" * 500, id="description: max length 500"),
        pytest.param("version", "2.1.3", id="version: MAJOR.MINOR.PATCH"),
        pytest.param("version", "0.5.0-alpha", id="version: pre-release"),
        pytest.param("author", "Jane Doe <jane@example.com>", id="author: name and address"),
        pytest.param("author", "DevOps Team", id="author: team"),
        pytest.param("created", "2025-11-18T14:30:00Z", id="created: UTC"),
        pytest.param("created", "2025-11-18T14:30:00-08:00", id="created: offset"),
        pytest.param("updated", "2025-11-20T09:15:00Z", id="updated: UTC"),
        pytest.param("tags", ["code-quality", "analysis", "python"], id="tags: list of strings"),
        pytest.param("tags", [], id="tags: empty list"),
        pytest.param("context", {}, id="context: empty"),
        pytest.param("context", {"n": 1, "f": 0.5, "t": True, "l": [1], "o": {"x": None}}, id="context: any values"),
    ],
)
def test_a_recipes_field_takes(field: str, value: Any) -> None:
    """Every value that the document allows in a recipe's field is valid."""
    assert _flaws(recipe(step()) | {field: value}) == []


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        pytest.param("name", 5, "wrong_type", id="name: string"),
        pytest.param("name", "name\n", "invalid_value", id="name: no line end behind it"),
        pytest.param("name", "größe", "invalid_value", id="name: alphanumeric"),
        pytest.param("description", ["x"], "wrong_type", id="description: string"),
        pytest.param("version", 1.0, "wrong_type", id="version: string"),
        pytest.param("version", "1.0.0.0", "invalid_value", id="version: three numbers"),
        pytest.param("version", "1.0.0-01", "invalid_value", id="version: pre-release as semver has it"),
        pytest.param("author", {"name": "x"}, "wrong_type", id="author: string"),
        pytest.param("created", 20251118, "wrong_type", id="created: string"),
        pytest.param("created", "18.11.2025", "invalid_value", id="created: ISO 8601"),
        pytest.param("created", "2025-11-18T25:00:00Z", "invalid_value", id="created: hour"),
        pytest.param("updated", "2025-11-20T09:15:00+25:00", "invalid_value", id="updated: offset"),
        pytest.param("tags", "python", "wrong_type", id="tags: list"),
        pytest.param("context", ["x"], "wrong_type", id="context: dictionary"),
        pytest.param("steps", {"a": step()}, "wrong_type", id="steps: list"),
    ],
)
def test_a_recipes_field_refuses(field: str, value: Any, code: str) -> None:
    """A violation of a type or constraint of a recipe's field is one fault, at that field."""
    assert _flaws(recipe(step()) | {field: value}) == [(f"$.{field}", code)]


@pytest.mark.parametrize("field", ["author", "created", "updated", "tags", "context"])
def test_a_recipes_field_is_optional(field: str) -> None:
    """A recipe without an optional field is valid."""
    whole = recipe(
        step(), author="x", created="2025-11-18", updated="2025-11-18", tags=["x"], context={"x": 1}, schema="1.1"
    )
    del whole[field]

    assert _flaws(whole) == []


# -- the step


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("id", "analyze-code", id="id: hyphens"),
        pytest.param("id", "step_2", id="id: underscores and digits"),
        pytest.param("id", "x" * 50, id="id: max length 50"),
        pytest.param("agent", "bundle:helper", id="agent: namespaced"),
        pytest.param("mode", "ANALYZE", id="mode: string"),
        pytest.param("prompt", "Analyze {{severity}}\n\nof {{ analysis.issues }}\n", id="prompt: multi-line"),
        pytest.param("output", "analysis_2", id="output: alphanumeric, underscores"),
        pytest.param("agent_config", TOOLS, id="agent_config: partial config"),
        pytest.param("agent_config", {}, id="agent_config: empty"),
        pytest.param("timeout", 1, id="timeout: positive integer"),
        pytest.param("timeout", 1800, id="timeout: thirty minutes"),
        pytest.param("retry", {}, id="retry: all defaults"),
        pytest.param("retry", {"max_attempts": 1}, id="retry.max_attempts: positive"),
        pytest.param("retry", {"backoff": "exponential"}, id="retry.backoff: exponential"),
        pytest.param("retry", {"backoff": "linear"}, id="retry.backoff: linear"),
        pytest.param("retry", {"initial_delay": 10, "max_delay": 300}, id="retry: delays"),
        pytest.param("on_error", "fail", id="on_error: fail"),
        pytest.param("on_error", "continue", id="on_error: continue"),
        pytest.param("on_error", "skip_remaining", id="on_error: skip_remaining"),
        pytest.param("depends_on", [], id="depends_on: empty"),
        pytest.param("depends_on", ["before"], id="depends_on: earlier step"),
    ],
)
def test_a_steps_field_takes(field: str, value: Any) -> None:
    """Every value that the document allows in a step's field is valid."""
    assert _flaws(recipe(step("before"), step() | {field: value}, context=CONTEXT)) == []


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        pytest.param("id", 1, "wrong_type", id="id: string"),
        pytest.param("id", "a\n", "invalid_value", id="id: no line end behind it"),
        pytest.param("id", "", "invalid_value", id="id: not empty"),
        pytest.param("agent", ["helper"], "wrong_type", id="agent: string"),
        pytest.param("agent", "nobody", "unknown_agent", id="agent: available"),
        pytest.param("agent", "helper\n", "invalid_value", id="agent: no line end behind it"),
        pytest.param("mode", 5, "wrong_type", id="mode: string"),
        pytest.param("prompt", 5, "wrong_type", id="prompt: string"),
        pytest.param("prompt", "\t\n", "invalid_value", id="prompt: non-empty"),
        pytest.param("condition", True, "wrong_type", id="condition: string"),
        pytest.param("condition", "", "invalid_value", id="condition: not empty"),
        pytest.param("output", 5, "wrong_type", id="output: string"),
        pytest.param("output", "a b", "invalid_value", id="output: no blank"),
        pytest.param("output", "a.b", "invalid_value", id="output: no dot"),
        pytest.param("output", "x\n", "invalid_value", id="output: no line end behind it"),
        pytest.param("agent_config", "opus", "wrong_type", id="agent_config: dictionary"),
        pytest.param("timeout", True, "wrong_type", id="timeout: integer, not true"),
        pytest.param("retry", 3, "wrong_type", id="retry: dictionary"),
        pytest.param("retry", {"max_attempts": "3"}, "wrong_type", id="retry.max_attempts: integer"),
        pytest.param("retry", {"max_attempts": 2.5}, "wrong_type", id="retry.max_attempts: whole"),
        pytest.param("retry", {"initial_delay": 0.5}, "wrong_type", id="retry.initial_delay: integer"),
        pytest.param("retry", {"max_delay": "5m"}, "wrong_type", id="retry.max_delay: integer"),
        pytest.param("retry", {"max_delay": -1}, "invalid_value", id="retry.max_delay: not negative"),
        pytest.param("on_error", ["continue"], "wrong_type", id="on_error: string"),
        pytest.param("on_error", "Continue", "invalid_value", id="on_error: as it is written"),
        pytest.param("depends_on", "before", "wrong_type", id="depends_on: list"),
        pytest.param("depends_on", [1], "wrong_type", id="depends_on: of strings"),
    ],
)
def test_a_steps_field_refuses(field: str, value: Any, code: str) -> None:
    """A violation of a type or constraint of a step's field is one fault, at that field."""
    found = _flaws(recipe(step("before"), step() | {field: value}, context=CONTEXT))

    assert found[0][1] == code
    assert all(path.startswith(f"$.steps[1].{field}") for path, _ in found)


@pytest.mark.parametrize(
    "condition",
    [
        "{{severity}} == 'critical'",
        "{{analysis.severity}} == 'critical'",
        "{{tests_passed}} == 'true' and {{review_approved}} == 'true'",
        "{{severity}} == 'critical' or {{severity}} == 'high'",
        "{{status}} == 'approved'",
        '{{status}} == "approved"',
        "{{status}} != 'pending'",
        "{{a}} == 'x' and {{b}} == 'y'",
        "{{a}} == 'x' or {{b}} == 'y'",
        "{{report.severity}} == 'critical'",
        "{{analysis_result}} != 'failed'",
        "{{security_passed}} == 'true' and {{tests_passed}} == 'true'",
        "{{a}} == 'x' and {{b}} == 'y' or {{c}} == 'z'",
    ],
)
def test_conditions_of_the_document(condition: str) -> None:
    """Every condition in the document is valid in both versions."""
    assert _flaws(recipe(step(condition=condition), context=CONTEXT)) == []
    assert _flaws(later(step(condition=condition), context=CONTEXT)) == []


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param("{{a}} > '1'", id="numeric comparison: >"),
        pytest.param("{{a}} < '1'", id="numeric comparison: <"),
        pytest.param("{{a}} >= '1'", id="numeric comparison: >="),
        pytest.param("{{a}} <= '1'", id="numeric comparison: <="),
        pytest.param("not {{a}} == 'x'", id="negation: not"),
        pytest.param("({{a}} == 'x') and {{b}} == 'y'", id="parentheses for grouping"),
    ],
)
def test_deferred_operators(condition: str) -> None:
    """An operator that the document defers needs the later version, which the message names."""
    (found,) = recipe_harness.own_flaws(recipe(step(condition=condition), context=CONTEXT))

    assert (found.path, found.code) == ("$.steps[0].condition", "invalid_condition")
    assert 'schema: "1.7"' in found.message
    assert _flaws(later(step(condition=condition), context=CONTEXT)) == []


@pytest.mark.parametrize(
    "condition", ["{{a.contains('x')}} == 'true'", "{{a}}.startswith('x')", "{{a}}.endswith('x') == 'true'"]
)
def test_functions_of_texts_do_not_exist(condition: str) -> None:
    """Functions of texts, which are not implemented, are faults in every version."""
    for made in (recipe, later):
        assert _flaws(made(step(condition=condition), context=CONTEXT)) == [
            ("$.steps[0].condition", "invalid_condition")
        ]


# -- loops


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"prompt": "Process {{item}}"}, id="as: default is item"),
        pytest.param({"as": "current_file", "prompt": "Process {{current_file}}"}, id="as: own name"),
        pytest.param({"collect": "all_results"}, id="collect: variable name"),
        pytest.param({"max_iterations": 500}, id="max_iterations: higher"),
        pytest.param({"max_iterations": 1}, id="max_iterations: lowest"),
        pytest.param({"foreach": "{{results.files}}"}, id="foreach: nested variable"),
        pytest.param({"foreach": " {{ files }} "}, id="foreach: blanks around the variable"),
        pytest.param({"condition": "{{severity}} == 'high'"}, id="foreach: with condition"),
        pytest.param({"as": "severity", "prompt": "{{severity}}"}, id="as: shadows the context"),
    ],
)
def test_a_loop_takes(fields: dict[str, Any]) -> None:
    """Every value that the document allows in a loop is valid."""
    assert _flaws(recipe(step(**({"foreach": "{{files}}"} | fields)), context=CONTEXT)) == []


@pytest.mark.parametrize(
    ("fields", "path", "code"),
    [
        pytest.param({"foreach": "all {{files}}"}, "foreach", "no_variable", id="foreach: nothing beside the variable"),
        pytest.param({"foreach": ""}, "foreach", "invalid_value", id="foreach: not empty"),
        pytest.param({"as": "current file"}, "as", "invalid_value", id="as: variable name"),
        pytest.param({"as": "step"}, "as", "reserved_name", id="as: step is reserved"),
        pytest.param({"as": "session"}, "as", "reserved_name", id="as: session is reserved"),
        pytest.param({"collect": "recipe"}, "collect", "reserved_name", id="collect: recipe is reserved"),
        pytest.param({"collect": "step"}, "collect", "reserved_name", id="collect: step is reserved"),
        pytest.param({"max_iterations": -5}, "max_iterations", "invalid_value", id="max_iterations: positive"),
        pytest.param({"max_iterations": 2.5}, "max_iterations", "wrong_type", id="max_iterations: integer"),
        pytest.param({"prompt": "{{file}}"}, "prompt", "undefined_variable", id="as: no other name is set"),
        pytest.param({"as": "f", "prompt": "{{item}}"}, "prompt", "undefined_variable", id="as: replaces the default"),
    ],
)
def test_a_loop_refuses(fields: dict[str, Any], path: str, code: str) -> None:
    """A violation of a loop's constraint is one fault, at its field."""
    found = _flaws(recipe(step(**({"foreach": "{{files}}"} | fields)), context=CONTEXT))

    assert found[0] == (f"$.steps[0].{path}", code)
    assert {place for place, _ in found} == {f"$.steps[0].{path}"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("continue_on_error", True, id="continue_on_error"),
        pytest.param("parallel", True, id="parallel iteration"),
        pytest.param("nested_foreach", {"foreach": "{{files}}"}, id="nested loops"),
        pytest.param("index_as", "n", id="index variable"),
        pytest.param("break_if", "{{item}} == 'x'", id="early termination"),
    ],
)
def test_deferred_fields_of_loops(field: str, value: Any) -> None:
    """A field that the document defers is valid in the later version; in the first one a fault names that version."""
    looped = step(foreach="{{files}}", **{field: value})

    assert _flaws(later(looped, context=CONTEXT)) == []
    assert _flaws(recipe(looped, context=CONTEXT)) == [(f"$.steps[0].{field}", "needs_schema")]


def test_the_future_parallel_step() -> None:
    """The document's future parallel step is valid in the later version only."""
    group = {
        "id": "parallel-analysis",
        "parallel": True,
        "substeps": [step("security", prompt="Security scan"), step("performance", prompt="Performance scan")],
    }

    assert _flaws(later(group)) == []
    assert _flaws(recipe(group)) == [("$.steps[0].parallel", "needs_schema")]


# -- dependencies


def test_the_dependencies_of_the_document() -> None:
    """A summary can depend on the earlier analyses that its prompt names."""
    document = recipe(
        step("analyze-security", output="security_report"),
        step("analyze-performance", output="performance_report"),
        step(
            "generate-summary",
            depends_on=["analyze-security", "analyze-performance"],
            prompt="{{security_report}} and {{performance_report}}",
        ),
    )

    assert _flaws(document) == []


def test_circular_dependencies() -> None:
    """Of two steps that depend on one another the first is reported, since the second comes after it."""
    document = recipe(step("one", depends_on=["two"]), step("two", depends_on=["one"]))

    assert _flaws(document) == [("$.steps[0].depends_on[0]", "later_dependency")]
