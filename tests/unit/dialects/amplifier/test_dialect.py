"""Tests of the dialect in the program: beside agents and other recipes, drawn, frozen and restarted."""

from __future__ import annotations

import json

import pytest

from app.agents import roster
from app.dialects.registry import DIALECTS
from app.domain import library, plain
from app.domain.states import RunState
from tests.unit.dialects.amplifier import recipe_harness
from tests.unit.dialects.amplifier.recipe_harness import broke, later, parsed, ran, recipe, staged, step

FOLDER = recipe_harness.ROOT / "recipes" / "amplifier"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
HELPER = library.Agent(id="helper", archetype="aide", tier="t3", backend="local", role="You help.")


def _library(*recipes):
    return library.Library(agents=(HELPER,), recipes={one.recipe_id: one for one in recipes})


def _flaws(document, *recipes):
    return {(flaw.path, flaw.code) for flaw in recipe_harness.DIALECT.check(parsed(document), _library(*recipes))}


def test_the_dialect_is_registered_for_yaml_files():
    """Recipes of the language are YAML files that contain their ids."""
    dialect = DIALECTS["amplifier"]

    assert (dialect.name, dialect.file_suffixes) == ("amplifier", (".yaml", ".yml"))
    assert dialect.parse(json.dumps(recipe(step())), "file").recipe_id == "small"


def test_agents_are_there_before_the_first_step():
    """Each agent of a recipe must be configured, wherever it is named: by id, with a namespace, or by role."""
    document = later(
        step("a"),
        step("b", agent="foundation:helper"),
        step("c", agent="aide"),
        {"id": "d", "substeps": [step("e", agent="nobody")]},
        step("f", agent="helpr"),
    )
    flaws = recipe_harness.DIALECT.check(parsed(document), _library())

    assert [(flaw.path, flaw.code) for flaw in flaws] == [
        ("$.steps[3].substeps[0].agent", "unknown_agent"),
        ("$.steps[4].agent", "unknown_agent"),
    ]
    assert "did you mean helper?" in flaws[1].message


def test_recipes_that_are_run_are_there():
    """A called recipe must exist, and its required and accepted arguments must fit the call."""
    other = parsed(recipe(step(), name="other", context={"target": "", "depth": 1}))

    def calling(name, **given):
        return later({"id": "a", "type": "recipe", "recipe": name, "context": given})

    assert _flaws(calling("other", target="x"), other) == set()
    assert _flaws(calling("small")) == set()
    assert _flaws(calling("nobody")) == {("$.steps[0].recipe", "unknown_recipe")}
    assert _flaws(calling("other", targt="x"), other) == {
        ("$.steps[0].context.target", "missing_arg"),
        ("$.steps[0].context.targt", "undeclared_arg"),
    }


def test_values_that_a_called_recipe_would_refuse():
    """A value without variables must have the type of the argument; one with variables is known only in the run."""
    declared = {"n": {"type": "integer"}, "kind": {"enum": ["quick", "full"]}, "more": {"type": "array"}}
    other = parsed(later(step(), name="other", args_schema={"properties": declared}))

    def calling(**given):
        return later({"id": "a", "type": "recipe", "recipe": "other", "context": given}, context={"x": 1})

    assert _flaws(calling(n=1, kind="full", more=["{{x}}"]), other) == set()
    assert _flaws(calling(n="{{x}}", kind="{{x}}", more="{{x}}"), other) == set()
    assert _flaws(calling(n="1", kind="slow", more=None), other) == {
        ("$.steps[0].context.n", "wrong_type"),
        ("$.steps[0].context.kind", "invalid_value"),
        ("$.steps[0].context.more", "wrong_type"),
    }


@pytest.mark.parametrize(
    ("key", "node", "done_means"),
    [
        ("approval:result", "approval", "done"),
        ("approval:one", "approval:one", "done"),
        ("g[0].delay", "delay", "done"),
        ("g[0].delay.delay", "delay", None),
        ("approval.delay", "approval", None),
    ],
)
def test_steps_named_like_parts_of_keys_have_their_nodes(key, node, done_means):
    """A step may be called `delay` or `approval`: its lines are those of its own node in the graph."""
    group = {"id": "g", "foreach": "{{l}}", "substeps": [step("delay")]}
    asked = {"name": "one", "steps": [group, step("approval")], "approval": {"required": True, "prompt": "?"}}
    drawing = recipe_harness.DIALECT.graph(parsed(staged(asked, context={"l": [1]})).document, {})
    passage = drawing.locator()(key, None).path[-1]

    assert (passage.node, passage.done_means) == (node, done_means)


def test_flaws_of_text_and_agents_are_reported_together():
    """The parser's flaws come first; flaws beside the agents are added for a readable text."""
    assert recipe_harness.DIALECT.flaws("name: x", "x", _library())
    assert [
        flaw.code for flaw in recipe_harness.DIALECT.flaws(json.dumps(recipe(step(agent="x"))), "x", _library())
    ] == ["unknown_agent"]


def test_a_run_freezes_the_agents_of_its_recipe():
    """A run freezes the agents of its recipe, under the names in the recipe."""
    frozen = recipe_harness.DIALECT.freeze(
        parsed(recipe(step("a", agent="foundation:helper"), step("b", agent="aide"))), _library()
    )

    assert frozen == {"agents": {"foundation:helper": HELPER.to_json(), "aide": HELPER.to_json()}}


def test_the_graph():
    """Steps, groups and approvals are nodes; conditions and loops label the edges that lead to them."""
    document = staged(
        {
            "name": "look",
            "steps": [
                {
                    "id": "scan",
                    "parallel": True,
                    "substeps": [step("one"), {"id": "two", "type": "bash", "command": "ls"}],
                },
                step("each", foreach="{{l}}", condition="{{x}} == 'y'"),
            ],
            "approval": {"required": True, "prompt": "?"},
        },
        {
            "name": "act",
            "steps": [{"id": "run", "type": "recipe", "recipe": "small"}],
            "approval": {"required": True, "prompt": "?", "when": "before"},
        },
        context={"l": [], "x": "y"},
    )
    graph = recipe_harness.DIALECT.graph(parsed(document).document, {})

    assert [(node.id, node.kind, node.phase, node.group) for node in graph.nodes] == [
        ("scan", "branch", "look", None),
        ("one", "agent", "look", "scan"),
        ("two", "command", "look", "scan"),
        ("each", "agent", "look", None),
        ("approval:look", "gate", "look", None),
        ("approval:act", "gate", "act", None),
        ("run", "recipe", "act", None),
    ]
    assert {(edge.source, edge.target, edge.label, edge.kind) for edge in graph.edges} == {
        ("scan", "one", "parallel", "branch"),
        ("scan", "two", "parallel", "branch"),
        ("scan", "each", "if {{x}} == 'y', for each {{l}}", "next"),
        ("each", "approval:look", None, "next"),
        ("approval:look", "approval:act", None, "next"),
        ("approval:act", "run", None, "next"),
    }


# -- the bundled recipes


def test_the_examples():
    """The examples are the three complete recipes of the document, and one with stages and a parallel loop."""
    assert EXAMPLES == ["batch-file-analyzer", "comprehensive-code-review", "conditional-code-review", "staged-review"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_sound(name):
    """The agents of an example are bundled too, so that any project can start it."""
    bundled = roster.load([recipe_harness.ROOT / "recipes" / "agents.json"])
    source = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")

    assert recipe_harness.DIALECT.flaws(source, name, library.Library(agents=bundled.agents)) == []


SAID = {
    "comprehensive-code-review": {},
    "conditional-code-review": {"analyze": '{"severity": "high", "issues": ["no tests"]}'},
    "batch-file-analyzer": {"discover-files": '{"files": ["a.py", "b.py"]}'},
    "staged-review": {},
}
SCANS = ["security-scan", "performance-analysis", "maintainability-review"]
TAKEN = {
    "comprehensive-code-review": [*SCANS, "synthesize-findings", "generate-report"],
    "conditional-code-review": ["analyze", "high-priority-review", "report"],
    "batch-file-analyzer": ["discover-files", "analyze-each[0]", "analyze-each[1]", "synthesize"],
    "staged-review": ["review-each[0]", "review-each[1]", "review-each[2]", "plan", "approval:look", "write-down"],
}


@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_runs(name):
    """An example runs step by step to its end, with agents that answer."""
    source = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    run = await ran(source, SAID[name], **({"file_path": "src/auth.py"} if name.startswith("comp") else {}))

    assert (run.manifest["status"], run.manifest["error"]) == ("done", None)
    assert [key for key, _ in run.stub.asked] == TAKEN[name]
    assert run.stub.most <= 2


# -- restarts

NESTED = {"foreach": "{{l}}", "as": "k", "parallel": 2, "continue_on_error": True}
PARALLEL = later(
    step("each", foreach="{{l}}", parallel=3, output="last", collect="all", retry={"initial_delay": 1}),
    {"id": "scan", "parallel": True, "substeps": [step("one", output="x"), step("two", condition="{{y}} == 'q'")]},
    step("rows", foreach="{{l}}", nested_foreach=NESTED),
    step("after", prompt="{{all}} {{x}} {{last}}"),
    context={"l": ["a", "b", "c", "d"], "y": "z"},
)
REPLIES = {"each[1]": [broke("rate_limited"), "late"], "scan.one": "risk", "rows[2][1]": broke()}


async def test_a_run_cut_anywhere_ends_the_same():
    """A restart after any prefix of the journal performs only the rest, with the same prompts and ending."""
    whole = recipe_harness.Run(PARALLEL)
    whole.replies.update(REPLIES)

    assert await whole.run() is RunState.DONE
    for length in range(len(whole.disk.steps)):
        again = recipe_harness.Run(PARALLEL)
        again.replies.update(REPLIES)
        again.disk.steps = whole.disk.steps[:length]
        recorded = {(line["key"], line["attempt"]) for line in again.lines()}

        assert await again.run() is RunState.DONE
        assert recorded.isdisjoint(again.stub.asked)
        assert again.manifest["ending"] == whole.manifest["ending"]
        assert again.slots == whole.slots
        assert sorted(again.statuses().items()) == sorted(whole.statuses().items())
        assert plain.plain(again.skipped) == plain.plain(whole.skipped)
