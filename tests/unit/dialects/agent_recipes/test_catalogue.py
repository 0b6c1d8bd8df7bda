"""Tests of the eight bundled recipes: their machines, prompts, and shared parts (agent-recipes, 5, 7, 20)."""

from __future__ import annotations

import json

import pytest

from app.dialects.agent_recipes import composition, transitions
from app.domain import library
from app.domain.states import RunState
from tests.unit.dialects.agent_recipes import recipe_harness
from tests.unit.dialects.agent_recipes.recipe_harness import OTHER, OTHER_SAID, Play, bundled, says

EXIT = "EXIT"
REVIEWED = {"no-issues": "commit", "issues-found": "fix", "other": EXIT}
COMMITTED = {"committed": EXIT, "nothing-to-commit": EXIT, "other": EXIT}
IMPLEMENTED = {"complete": "code-review", "no-tasks": EXIT, "blocked": EXIT, "other": EXIT}
LOOP = {"code-review": REVIEWED, "fix": {"complete": "code-review", "other": EXIT}, "commit": COMMITTED}
PASSES = ["completeness", "breadth", "simplicity", "consistency", "polish", "final"]


def _pass(name):
    return "final-review" if name == "final" else f"review-{name}"


def _refining():
    steps = {"locate-design": {"found": "review-completeness", "not-found": EXIT, "other": EXIT}}
    for name, following in zip(PASSES, [*map(_pass, PASSES[1:]), "commit"], strict=True):
        steps[_pass(name)] = {"no-issues": following, "issues-found": f"fix-{name}", "other": EXIT}
        steps[f"fix-{name}"] = {"complete": _pass(name), "other": EXIT}
    return {**steps, "commit": COMMITTED}


MACHINES = {
    "review-and-commit": LOOP,
    "document-design": {
        "document": {"complete": "review", "needs-input": EXIT, "other": EXIT},
        "review": REVIEWED,
        "fix": {"complete": "review", "other": EXIT},
        "commit": COMMITTED,
    },
    "break-down-tasks": {
        "analyze": {"complete": "create-epic", "design-missing": EXIT, "needs-input": EXIT, "other": EXIT},
        "create-epic": {"complete": "create-tasks", "other": EXIT},
        "create-tasks": {"complete": "review-tasks", "other": EXIT},
        "review-tasks": {"no-issues": "commit", "issues-found": "fix-tasks", "other": EXIT},
        "fix-tasks": {"complete": "review-tasks", "other": EXIT},
        "commit": COMMITTED,
    },
    "implement-and-review": {"implement": IMPLEMENTED, **LOOP},
    "implement-and-review-all": {
        "implement": IMPLEMENTED,
        **LOOP,
        "commit": COMMITTED | {"committed": "RESTART implement-and-review-all"},
    },
    "rebase": {
        "rebase": {"complete": "review", "ask-questions": EXIT, "conflicts-unresolvable": EXIT, "other": EXIT},
        "review": REVIEWED | {"no-issues": "complete"},
        "fix": {"complete": "review", "other": EXIT},
        "complete": {"done": EXIT, "other": EXIT},
    },
    "retrospective": {"reflect": {"complete": EXIT, "other": EXIT}},
    "refine-design": _refining(),
}
"""The tables of section 5: the transition for each outcome of each step."""

HAIKU = {"commit", "locate-design"} | {"complete"}
"""Steps that are simple enough for the small model."""

ALL = sorted(MACHINES)
SHARING = ["review-and-commit", "implement-and-review", "implement-and-review-all"]


def _steps(recipe_id):
    return bundled(recipe_id).document["steps"]


def _prompts(*names):
    return [
        (f"{recipe_id}.{name}", step["prompt"])
        for recipe_id in ALL
        for name, step in _steps(recipe_id).items()
        if not names or name in names
    ]


def _reviews():
    return [(name, prompt) for name, prompt in _prompts() if "review" in name.partition(".")[2]]


def _actions():
    reviews = {name for name, _ in _reviews()} | {"retrospective.reflect"}
    return [(name, prompt) for name, prompt in _prompts() if name not in reviews]


def _drawn(transition):
    if "nextStep" in transition:
        return transition["nextStep"]
    return EXIT if transition["action"] == "exit" else f"RESTART {transition['recipeId']}"


# -- 20.1


def test_the_eight_recipes():
    """Each recipe is in a file of its name, beside a folder of shared parts."""
    assert sorted(path.stem for path in recipe_harness.CATALOGUE.glob("*.json")) == ALL
    assert all(bundled(recipe_id).recipe_id == recipe_id for recipe_id in ALL)


@pytest.mark.parametrize("recipe_id", ALL)
def test_a_recipe_is_sound(recipe_id):
    """Neither the parser nor the check beside the other recipes finds a flaw."""
    recipes = {name: bundled(name) for name in ALL}

    assert recipe_harness.DIALECT.check(recipes[recipe_id], library.Library(recipes=recipes)) == []


@pytest.mark.parametrize("recipe_id", ALL)
def test_a_machine_is_that_of_its_table(recipe_id):
    """Initial step, steps, outcomes, transitions and models are as specified, and every outcome is covered."""
    document = bundled(recipe_id).document
    machine = {
        name: {outcome: _drawn(step["onOutcome"][outcome]) for outcome in step["outcomes"]}
        for name, step in document["steps"].items()
    }

    assert machine == MACHINES[recipe_id]
    assert list(machine) == list(MACHINES[recipe_id])
    assert document["initialStep"] == next(iter(machine))
    assert {name for name, step in document["steps"].items() if "model" in step} == HAIKU & set(machine)
    assert {step.get("model", "haiku") for step in document["steps"].values()} == {"haiku"}


@pytest.mark.parametrize("recipe_id", ALL)
def test_transitions_lead_somewhere(recipe_id):
    """Each next step exists, each exit has a reason, and every step exits with the usual reason for `other`."""
    steps = _steps(recipe_id)
    for step in steps.values():
        assert set(step["outcomes"]) == set(step["onOutcome"])
        assert step["onOutcome"]["other"] == OTHER
        for transition in step["onOutcome"].values():
            assert transition.get("nextStep", recipe_id) in {*steps, recipe_id}
            assert "nextStep" in transition or transition.get("reason") or transition["recipeId"] == recipe_id


@pytest.mark.parametrize("recipe_id", ALL)
def test_guardrails_are_written_down(recipe_id):
    """Both limits are positive numbers in the file; only the recipe of many passes has higher ones."""
    written = json.loads((recipe_harness.CATALOGUE / f"{recipe_id}.json").read_text(encoding="utf-8"))["guardrails"]
    high = {"maxStepVisits": 5, "maxTotalSteps": 150, "exitOnOther": True}
    usual = {"maxStepVisits": 3, "maxTotalSteps": 100, "exitOnOther": True}

    assert written == (high if recipe_id == "refine-design" else usual)


@pytest.mark.parametrize(
    ("recipe_id", "outcome", "reason"),
    [
        ("review-and-commit", ("commit", "committed"), "changes-committed"),
        ("review-and-commit", ("commit", "nothing-to-commit"), "no-changes-to-commit"),
        ("implement-and-review", ("commit", "committed"), "changes-committed"),
        ("implement-and-review-all", ("implement", "no-tasks"), "no-tasks"),
        ("rebase", ("complete", "done"), "rebase-complete"),
        ("retrospective", ("reflect", "complete"), "retrospective-complete"),
    ],
)
def test_reasons_of_good_ends(recipe_id, outcome, reason):
    """Exits have the reasons in their drawings."""
    step, reported = outcome

    assert _steps(recipe_id)[step]["onOutcome"][reported] == {"action": "exit", "reason": reason}


# -- 20.3


@pytest.mark.parametrize("step", ["code-review", "fix", "commit"])
def test_shared_steps_are_written_once(step):
    """The three recipes share one step of one file; one of them changes a single transition of it."""
    shared = json.loads((recipe_harness.CATALOGUE / "shared" / "review-commit-steps.json").read_text(encoding="utf-8"))
    restart = {"action": "restart-new-session", "recipeId": "implement-and-review-all"}
    for recipe_id in SHARING:
        written = json.loads((recipe_harness.CATALOGUE / f"{recipe_id}.json").read_text(encoding="utf-8"))["steps"]
        reference = {"$ref": f"shared/review-commit-steps.json#/{step}"}
        if (recipe_id, step) == ("implement-and-review-all", "commit"):
            assert written[step] == {**reference, "onOutcome": {"committed": restart}}
            changed = shared[step]["onOutcome"] | {"committed": restart}
            assert _steps(recipe_id)[step] == shared[step] | {"onOutcome": changed}
        else:
            assert written.get("$include") == "shared/review-commit-steps.json" or written[step] == reference
            assert _steps(recipe_id)[step] == shared[step]


def test_both_implementing_recipes_share_their_first_step():
    """The first step of both recipes is the same, however many tasks follow."""
    one, all_ = _steps("implement-and-review"), _steps("implement-and-review-all")

    assert one["implement"] == all_["implement"]
    assert {name for name in one if one[name] != all_[name]} == {"commit"}


def test_every_shared_step_is_used_by_a_recipe():
    """Every shared step is used by a recipe."""
    texts = "".join(path.read_text(encoding="utf-8") for path in recipe_harness.CATALOGUE.glob("*.json"))
    for path in (recipe_harness.CATALOGUE / "shared").glob("*.json"):
        name = f"shared/{path.name}"
        whole = f'"$include": "{name}"' in texts
        assert whole or all(f"{name}#/{step}" in texts for step in json.loads(path.read_text(encoding="utf-8")))


# -- prompts


def test_prompts_follow_the_conventions():
    """Actions have preparations, requirements, a checklist and a limit; reviews have a checklist and constraints."""
    for name, prompt in _actions():
        for heading in (
            "## Before Starting",
            "## Requirements",
            "## Verification Checklist",
            "Before marking complete",
        ):
            assert heading in prompt, (name, heading)
        assert "- [ ] " in prompt, name
        assert any(line.startswith("Do ") for line in prompt.splitlines()), name
    for name, prompt in _reviews():
        for heading in ("## Review Process", "## Review Checklist", "## Important Constraints"):
            assert heading in prompt, (name, heading)
        assert "- [ ] " in prompt, name
        assert "- Do not make changes yet: this step is review only" in prompt, name
        assert prompt.splitlines()[-1].startswith("Report "), name


def test_a_prompt_names_each_outcome_except_other():
    """The prompt of a step names each of its outcomes except `other`, which every step has."""
    for recipe_id in ALL:
        for name, step in _steps(recipe_id).items():
            for outcome in set(step["outcomes"]) - {"other"}:
                assert f"`{outcome}`" in step["prompt"], (recipe_id, name, outcome)


def test_prompts_are_whole_and_clean():
    """A prompt has no trailing line end, and every placeholder is an argument."""
    for name, prompt in _prompts():
        assert prompt == prompt.strip(), name
        assert all(line == line.rstrip() for line in prompt.splitlines()), name
        assert prompt.count("{{") == len(list(composition.placeholders(prompt))), name


def test_prompts_for_the_small_model_are_simple():
    """Steps on the small tier have shorter prompts than any review."""
    simple = [prompt for name, prompt in _prompts() if name.partition(".")[2] in HAIKU]
    shortest = min(len(_steps("review-and-commit")["code-review"]["prompt"]), 1600)

    assert max(map(len, simple)) < shortest


REQUIRED = {
    "review-and-commit.code-review": [
        "git diff",
        "Read each modified file",
        "Correctness",
        "Code quality",
        "Testing",
        "Security and performance",
        "Design alignment",
        "Report the files that you read and what you checked",
        "@STANDARDS.md",
        "@CLAUDE.md",
    ],
    "review-and-commit.fix": ["issues that the code review", "Run the project's tests", "no fix brings a new issue in"],
    "review-and-commit.commit": [
        "clear commit message",
        "Push to the remote after committing",
        "git push",
        "bd close <id>",
        "bd update <id>",
        "git status",
    ],
    "document-design.document": [
        "{{args.subject}}",
        "**Overview**",
        "goals, and the non-goals",
        "**Background & Context**",
        "why this is due now",
        "**Detailed Design**",
        "the data model, the API, code examples",
        "**Verification Strategy**",
        "acceptance criteria",
        "**Alternatives Considered**",
        "**Risks & Mitigations**",
        "roll back",
        "syntactically correct",
        "match the style of the codebase",
        "specific and can be carried out",
        "@filename.md",
        "No placeholder text",
    ],
    "break-down-tasks.analyze": [
        "command -v bd",
        "report `other` and say that `bd` is missing",
        "all components",
        "every acceptance criterion",
        "dependency graph",
        "ambiguity",
        "bd list",
        "beads/",
        "{{args.design}}",
        "@path/to/design.md",
    ],
    "break-down-tasks.create-epic": ["bd add", "bd show <id>"],
    "break-down-tasks.create-tasks": [
        "Atomic",
        "Testable",
        "Independent",
        "Small: it can be completed in one session",
        "Design reference",
        "Context",
        "Requirements",
        "Technical approach",
        "Verification",
        "Acceptance criteria",
        "foundation, core logic, integration, UI, docs",
        "Mark explicitly which tasks can be worked on in parallel",
        "After all tasks are created, establish the dependency links",
        "bd add",
        "bd dep add",
        "bd blocked",
    ],
    "break-down-tasks.fix-tasks": ["bd edit <id>", "bd delete <id>", "bd dep add"],
    "implement-and-review.implement": [
        "command -v bd",
        "report `other` and say that `bd` is missing",
        "bd ready --limit 1",
        "If there is none, report `no-tasks`",
        "Read the design document",
        "@STANDARDS.md",
        "@CLAUDE.md",
        "Tests are written alongside the code",
        "Run the tests",
        "Do NOT commit",
        "code review happens next",
    ],
    "rebase.rebase": [
        "working directory must be clean",
        "git fetch origin",
        "git rebase {{args.main_branch}}",
        "**local** branch",
        "Preserve the intent of both branches",
        "read both versions",
        "WHY each change was made",
        "report `ask-questions`",
        "git commit --amend",
        "git status",
    ],
    "rebase.review": [
        "parallel subagents",
        "preserves the intent of both branches",
        "deleted by accident",
        "twice",
        "Run the project's tests",
    ],
    "retrospective.reflect": [
        "Do NOT make any changes to files",
        "Do NOT run any commands or tests",
        "purely investigative and reflective",
        "concisely",
        "bullet points",
        "leave out what went well",
        "Tool issues",
        "Development friction",
        "Testing friction",
        "Process friction",
    ],
    "refine-design.review-completeness": [
        "problem statement",
        "goals",
        "components",
        "Data models",
        "API contracts",
        "Code examples",
        "Error handling",
        "testing strategy",
        "decisions are justified",
        "idiomatic",
        "Edge cases",
    ],
    "refine-design.review-breadth": [
        "Failure modes",
        "Recovery strategies",
        "Backward compatibility",
        "Migration path",
        "Performance implications",
        "Security implications",
        "Observability needs",
        "Dependency failure modes",
        "Upstream and downstream consumers",
        "Deployment considerations",
    ],
    "refine-design.review-simplicity": [
        "abstraction without multiple uses",
        "hardcoded",
        "hypothetical needs",
        "specific would suffice",
        "layers of indirection",
        "state machine where conditionals work",
        "YAGNI",
        "for future use",
    ],
    "refine-design.review-consistency": [
        "Terminology is consistent",
        "Code examples match the approach",
        "Data models agree",
        "contradicts",
        "conventions of the project",
        "match the existing codebase",
        "referred to exist",
    ],
    "refine-design.review-polish": [
        "concise and direct",
        "ambiguous",
        "logical hierarchy",
        "properly formatted",
        "typos",
        "placeholder text",
        "DO comments",
    ],
    "refine-design.final-review": [
        "solve the stated problem",
        "obviously wrong or missing",
        "comfortable implementing from this design",
    ],
}


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_a_prompt_has_the_required_commands_and_files(name):
    """The prompt contains the required commands, criteria, files and constraints."""
    prompt = dict(_prompts())[name]

    assert [words for words in REQUIRED[name] if words not in prompt] == []


def test_every_command_of_the_list_is_in_some_prompt():
    """Every git and task command that the recipes must use is in a prompt."""
    text = "\n".join(prompt for _, prompt in _prompts())
    git = ["git diff", "git status", "git fetch origin", "git rebase", "git commit --amend", "git push"]
    tasks = ["ready --limit 1", "add", "close <id>", "update <id>", "dep add", "list", "blocked", "show <id>"]

    assert [command for command in git if f"`{command}" not in text] == []
    assert [command for command in [*tasks, "edit <id>", "delete <id>"] if f"bd {command}" not in text] == []


def test_arguments_of_the_recipes():
    """The main branch and the design have defaults; a subject and a retrospective's conversation are required."""
    schemas = {recipe_id: bundled(recipe_id).args_schema for recipe_id in ALL}
    own = {
        recipe_id: [name for name in schema["properties"] if name not in schemas["review-and-commit"]["properties"]]
        for recipe_id, schema in schemas.items()
    }

    assert {name: schema["required"] for name, schema in schemas.items() if "required" in schema} == {
        "document-design": ["subject"],
        "retrospective": ["agent_session_id"],
    }
    assert {name: args for name, args in own.items() if args} == {
        "break-down-tasks": ["design"],
        "document-design": ["subject"],
        "rebase": ["main_branch"],
        "refine-design": ["design"],
    }
    assert schemas["rebase"]["properties"]["main_branch"]["default"] == "main"


# -- runs


GOOD = {"no-issues", "complete", "committed", "found", "done"}


def _best(step):
    return next(outcome for outcome in step["outcomes"] if outcome in GOOD)


@pytest.mark.parametrize("recipe_id", ALL)
async def test_a_recipe_runs_to_its_good_end(recipe_id, tmp_path):
    """If every step succeeds, the run takes the straight way through the machine, in one conversation."""
    made = bundled(recipe_id)
    script = {f"*{name}": says(_best(step)) for name, step in made.document["steps"].items()}
    args = {"subject": "Caching"} if recipe_id == "document-design" else {}
    args |= {"agent_session_id": "ses_1"} if recipe_id == "retrospective" else {}
    play = Play(tmp_path, made, {**script, "restart1/implement": says("no-tasks")}, args)

    assert await play.run() is RunState.DONE
    assert play.reason in ("changes-committed", "rebase-complete", "retrospective-complete", "no-tasks")
    visited = [key.removeprefix("restart1/") for key in play.keys]
    assert [name for name in made.document["steps"] if name in visited and "fix" not in name] == list(
        dict.fromkeys(visited)
    )
    assert all("{{" not in prompt.text for prompt in play.prompts)


async def test_a_task_loop_takes_a_conversation_for_each_task(tmp_path):
    """Three tasks are implemented, reviewed, fixed and committed in one conversation each, until no task is left."""
    script = {
        "*implement": says("complete"),
        "restart3/implement": says("no-tasks"),
        "*code-review": says("no-issues"),
        "restart1/code-review": says("issues-found"),
        "restart1/code-review#2": says("no-issues"),
        "*fix": says("complete"),
        "*commit": says("committed"),
    }
    play = Play(tmp_path, bundled("implement-and-review-all"), script)

    assert await play.run() is RunState.DONE
    assert play.reason == "no-tasks"
    assert len({prompt.agent_session_id for prompt in play.prompts}) == 4
    assert [prompt.key for prompt in play.prompts if not prompt.session_created] == [
        "implement",
        "restart1/implement",
        "restart2/implement",
        "restart3/implement",
    ]
    assert [note["restarts"] for note in play.notes("recipe:restarted")] == [1, 2, 3]


async def test_a_missing_tool_ends_the_run_with_its_name(tmp_path):
    """The agent's message about `bd` is visible in the run."""
    said = OTHER_SAID.replace("there is no repository", "bd is not installed")
    play = Play(tmp_path, bundled("implement-and-review"), {"implement": said})

    assert await play.run() is RunState.DONE
    assert play.reason == "user-provided-other"
    assert play.notes("step:outcome")[0]["otherDescription"] == "bd is not installed"


@pytest.mark.parametrize("recipe_id", ALL)
def test_review_loops_are_bounded(recipe_id):
    """Only recipes with a loop have no fixed number of steps, and each loop contains a review."""
    made = bundled(recipe_id)

    assert (made.total_steps is None) is (recipe_id != "retrospective")
    without = {name: step for name, step in made.document["steps"].items() if "review" not in name}
    cut = {
        name: {**step, "onOutcome": {o: t for o, t in step["onOutcome"].items() if t.get("nextStep") in without}}
        for name, step in without.items()
    }
    assert not transitions.loops({"steps": cut})
