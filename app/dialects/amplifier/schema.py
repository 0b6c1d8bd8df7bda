"""The schema of recipes: one table for each kind of object, from which JSON Schemas and load-time checks are made."""

from __future__ import annotations

from collections.abc import Mapping

from app.dialects import field_tables
from app.dialects.field_tables import MOST_SECONDS, NO, SECRETS, WORD, Field, field, part, several
from app.domain import frozen_agents, plain

VERSIONS = ("1.1", "1.7")  # Versions of the language, oldest first; a recipe that names none has the first.
FIRST, NEWEST = VERSIONS[0], VERSIONS[-1]  # The version of the document, and the one that has every field.
TYPES = ("agent", "bash", "recipe")  # Values of a step's `type`.
BEFORE, AFTER = "before", "after"  # Whether the approval is before or after the steps of its stage.
SUBSTEPS, STEPS = "substeps", "steps"
"""Fields with a step's own steps; the result of the second is that of its last step."""
COUNTERS = ("_loop_index", "_loop_iteration")
"""Variables that count the iterations of a loop with a condition, from 0 and from 1."""
APPROVE, DENY = "approve", "deny"  # Decisions on an approval.
FAIL, CONTINUE, SKIP_REMAINING = "fail", "continue", "skip_remaining"  # What happens after a failed step.
DEFAULT_ITEM = "item"  # Loop variable if none is named.
DEFAULT_ITERATIONS = 100  # Most iterations of a loop that names no limit.
DEFAULT_TIMEOUT = 600  # Most seconds that a step may take if it sets no limit.
VARIABLE = r"^[A-Za-z0-9_]{1,100}$"  # Form of the names of variables that steps set.
STEP_ID = r"^[A-Za-z0-9_-]{1,50}$"  # Form of the ids of steps, which keys contain.
STAGE_NAME = r"^[A-Za-z0-9][A-Za-z0-9 _:-]{0,99}$"  # Form of the names of stages.
AGENT = r"^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$"  # Form of the names of agents, with or without a namespace.
RECIPE = r"^(\.\./){0,8}[A-Za-z0-9_.-][A-Za-z0-9_. /-]{0,199}$"  # Form of the ids of recipes, and of their files.

_SEMVER = (
    r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(-(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$"
)
_MOMENT = (
    r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"([Tt ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?([Zz]|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])?)?$"
)
_MOST_ITERATIONS = 100_000

_TEXT = {"type": "string", "pattern": r"\S", "maxLength": 200_000}
_CONDITION = {"type": "string", "minLength": 1, "maxLength": 2_000}
_REFERENCE = {"type": "string", "minLength": 1, "maxLength": 500}
_NAME = {"type": "string", "pattern": VARIABLE}
_ID = {"type": "string", "pattern": STEP_ID}
_SECONDS = {"type": "integer", "minimum": 1, "maximum": MOST_SECONDS}
_COUNT = {"type": "integer", "minimum": 1, "maximum": _MOST_ITERATIONS}
_MS = {"type": "integer", "minimum": 0, "maximum": MOST_SECONDS * 1000}
_VALUES = {"type": "object", "propertyNames": {"pattern": r"^[A-Za-z0-9_-]{1,100}$"}}
_MODEL = {"type": "string", "pattern": r"^\S{1,200}$"}
_MOST_TOKENS = {"type": "integer", "minimum": 1, "maximum": 1_000_000}
_OF_MODEL = {"model": WORD | {"type": ["string", "null"]}, "max_tokens": _MOST_TOKENS}
_ROLE = {"type": "string", "maxLength": 20_000}
_PROVIDER = {"type": "object", "properties": {"config": {"type": "object", "properties": _OF_MODEL}}}
_SETTINGS = {
    "type": "object",
    "properties": {
        **_OF_MODEL,
        "backend": WORD,
        "on_cut_off": frozen_agents.LENGTH_FIELDS["on_cut_off"],
        **dict.fromkeys(("role", "system", "instruction"), _ROLE),
        "providers": {"type": "array", "items": _PROVIDER},
    },
}


def _must(name: str, rule: field_tables.Rule, meaning: str, **more: plain.Json) -> Field:
    return field(name, rule, meaning, required=True, **more)


def _later(name: str, rule: field_tables.Rule, meaning: str, **more: plain.Json) -> Field:
    return field(name, rule, meaning, since=NEWEST, **more)


def _loop_fields() -> tuple[Field, ...]:
    return (
        field("as", _NAME | {"default": DEFAULT_ITEM}, "Variable that holds the item."),
        field(
            "max_iterations",
            _COUNT | {"default": DEFAULT_ITERATIONS},
            "Maximum number of iterations; more fail the run.",
        ),
        _later("index_as", _NAME, "Variable that holds the position, from 0."),
        _later(
            "parallel",
            {"type": ["boolean", "integer"], "minimum": 1, "maximum": 1_000, "default": False},
            "Run iterations or sub-steps concurrently; a number is the limit.",
        ),
        _later("continue_on_error", NO, "Continue with the other iterations after one failed."),
        _later("break_if", _CONDITION, "Condition that ends the loop, evaluated after each iteration.", filled=True),
    )


KINDS: Mapping[str, tuple[Field, ...]] = {
    "recipe": (
        field("schema", {"enum": list(VERSIONS), "type": "string", "default": FIRST}, "Version of the language."),
        _must("name", {"type": "string", "pattern": r"^[A-Za-z0-9_-]{1,100}$"}, "Id, unique among all recipes."),
        _must(
            "description", {"type": "string", "pattern": r"\S", "maxLength": 500}, "Purpose, in one paragraph."
        ),
        _must("version", {"type": "string", "pattern": _SEMVER, "maxLength": 200}, "Semantic version of the recipe."),
        field("author", WORD, "Author."),
        field("created", {"type": "string", "pattern": _MOMENT}, "Time of creation, as ISO 8601."),
        field("updated", {"type": "string", "pattern": _MOMENT}, "Time of the last change, as ISO 8601."),
        field("tags", {"type": "array", "items": WORD, "maxItems": 100}, "Tags."),
        field("context", _VALUES, "Arguments and their defaults; an argument with an empty value is required."),
        _later("args_schema", {"type": "object"}, "JSON Schema of the arguments."),
        _later("secrets", SECRETS, "Secrets of every command, as in a step."),
        part("recursion", "recursion", "Limits of nested recipes.", since=NEWEST),
        part("rate_limiting", "rate_limiting", "Limits on prompts.", since=NEWEST),
        Field(
            name="steps",
            rule=several("step"),
            meaning="Steps, in order.",
            below="step",
            required_in=(FIRST,),
        ),
        _later("stages", several("stage"), "Groups of steps with approvals; instead of `steps`.", below="stage"),
        _later("final_output", _NAME, "Variable with the result of the run."),
        _later("output", _NAME, "Alias of `final_output`."),
    ),
    "stage": (
        _must("name", {"type": "string", "pattern": STAGE_NAME}, "Name, unique among the stages."),
        field("description", _TEXT, "Purpose."),
        _must("steps", several("step"), "Steps, in order.", below="step"),
        part("approval", "approval", "Question for a person."),
    ),
    "approval": (
        _must("required", {"type": "boolean"}, "Ask the question."),
        field("prompt", _TEXT, "Text of the question; required if `required` is true.", filled=True),
        field("timeout", _SECONDS | {"minimum": 0, "default": 0}, "Seconds to wait for an answer; 0: no limit."),
        field("default", {"type": "string", "enum": [APPROVE, DENY], "default": DENY}, "Decision after the timeout."),
        field(
            "when",
            {"type": "string", "enum": [BEFORE, AFTER, f"{BEFORE}_stage", f"{AFTER}_stage"], "default": AFTER},
            "Ask `before` or `after` the stage.",
        ),
        field("output", _NAME, "Variable for `stage`, `decision`, `message` and `by_default`."),
    ),
    "step": (
        _must("id", _ID, "Id, unique in the recipe."),
        _later("type", {"type": "string", "enum": list(TYPES), "default": TYPES[0]}, "Kind of step."),
        Field(
            name="agent",
            rule={"type": "string", "pattern": AGENT},
            meaning="Agent to ask.",
            required_in=(FIRST,),
        ),
        field("mode", WORD, "Mode of the agent, put before the prompt."),
        Field(name="prompt", rule=_TEXT, meaning="Prompt for the agent.", filled=True, required_in=(FIRST,)),
        _later("command", _TEXT, "Bash script; it receives values as environment variables.", filled=True),
        _later("cwd", _REFERENCE, "Folder of the command, inside the workspace.", filled=True),
        _later(
            "env",
            field_tables.ENV,
            "Environment variables of the command.",
            filled=True,
        ),
        _later("secrets", SECRETS, "Environment variables that the step requires; their values are masked."),
        _later("output_exit_code", _NAME, "Variable for the exit code; no exit code then fails the step."),
        _later("recipe", {"type": "string", "pattern": RECIPE}, "Recipe to run, by its id or file."),
        _later("context", _VALUES, "Arguments of that recipe; it receives nothing else.", filled=True),
        _later("substeps", several("step"), "Steps that form one step, in order or in parallel.", below="step"),
        _later(
            "steps",
            several("step"),
            "Alias of `substeps`; the result is that of the last one.",
            below="step",
        ),
        field("condition", _CONDITION, "Condition; if it is false, the step is skipped.", filled=True),
        field("foreach", _REFERENCE, "List; the step runs once per item.", filled=True),
        *_loop_fields()[:1],
        field("collect", _NAME, "Variable for the list of all results."),
        *_loop_fields()[1:],
        part("nested_foreach", "nested_foreach", "Loop inside this loop.", since=NEWEST),
        _later("while_condition", _CONDITION, "The step is repeated while this condition is true.", filled=True),
        _later("max_while_iterations", _COUNT, "Alias of `max_iterations` with `while_condition`."),
        _later("update_context", _VALUES, "Variables to set after each iteration.", filled=True),
        _later("break_when", _CONDITION, "Condition that ends the loop, evaluated after each iteration.", filled=True),
        field("output", _NAME, "Variable for the result."),
        _later("parse_json", {"type": "boolean"}, "`true`: the result must contain JSON; `false`: it stays text."),
        _later("reply_schema", {"type": "object"}, "JSON Schema of an object that the reply must match."),
        field("agent_config", _SETTINGS, "Settings of the agent for this step."),
        _later("provider", WORD, "Backend of the agent."),
        _later("model", _MODEL, "Model, a pattern (`claude-haiku-*`), or one of haiku, sonnet, opus."),
        _later("provider_preferences", several("preference"), "Backends and models, best first.", below="preference"),
        _later("max_tokens", _MOST_TOKENS, "Maximum length of the reply, in tokens."),
        field("timeout", _SECONDS | {"default": DEFAULT_TIMEOUT}, "Seconds per attempt; recipe steps have no default."),
        _later("idle_seconds", field_tables.IDLE, "Maximum silence of the agent or command, in seconds."),
        part("retry", "retry", "Retries after transient errors."),
        field(
            "on_error",
            {"type": "string", "enum": [FAIL, CONTINUE, SKIP_REMAINING], "default": FAIL},
            "What happens after a failure.",
        ),
        field(
            "depends_on",
            {"type": "array", "items": _ID, "maxItems": 1_000, "uniqueItems": True},
            "Earlier steps that this one needs.",
        ),
    ),
    "nested_foreach": (
        _must("foreach", _REFERENCE, "List of the inner loop; can use variables of the outer one.", filled=True),
        *_loop_fields(),
        part("nested_foreach", "nested_foreach", "Loop inside this loop."),
    ),
    "retry": (
        field("max_attempts", {"type": "integer", "minimum": 1, "maximum": 100, "default": 3}, "Maximum attempts."),
        field(
            "backoff",
            {"type": "string", "enum": ["exponential", "linear"], "default": "exponential"},
            "`exponential`: the delay doubles; `linear`: it grows by its initial value.",
        ),
        field("initial_delay", _SECONDS | {"minimum": 0, "default": 5}, "Delay before the second attempt, in seconds."),
        field("max_delay", _SECONDS | {"minimum": 0, "default": 300}, "Maximum delay, in seconds."),
    ),
    "recursion": (
        field("max_depth", _COUNT | {"maximum": 20, "default": 5}, "Maximum number of runs above a run."),
        field("max_total_steps", _COUNT, "Maximum number of steps, iterations included; unlimited by default."),
    ),
    "rate_limiting": (
        field("max_concurrent_llm", _COUNT | {"maximum": 1_000}, "Maximum number of concurrent prompts."),
        field("min_delay_ms", _MS, "Delay before each prompt except the first."),
        part("backoff", "backoff", "Retries of prompts that were rejected with `rate_limited`."),
    ),
    "backoff": (
        field("max_attempts", {"type": "integer", "minimum": 1, "maximum": 100, "default": 5}, "Maximum attempts."),
        field("initial_delay_ms", _MS | {"default": 1_000}, "Delay before the second attempt."),
        field("max_delay_ms", _MS | {"default": 60_000}, "Maximum delay."),
        field("enabled", {"type": "boolean", "default": True}, "Retry rejected prompts."),
        field(
            "multiplier",
            {"type": "number", "minimum": 1, "maximum": 100, "default": 2},
            "Factor by which the delay grows.",
        ),
    ),
    "preference": (
        _must("provider", WORD, "Backend."),
        field("model", _MODEL, "Model, a pattern (`claude-haiku-*`), or one of haiku, sonnet, opus."),
    ),
}  # fmt: skip
"""All kinds of objects, each with its fields in order."""


def body_of(step: plain.Object) -> str | None:
    """Return the field with the steps inside of a step, or None."""
    return next((name for name in (SUBSTEPS, STEPS) if name in step), None)


def break_of(loop: plain.Object) -> str | None:
    """Return the field that ends a loop over a list early, or None."""
    return next((name for name in ("break_if", "break_when") if name in loop), None)


def final(recipe: plain.Object) -> str | None:
    """Return the variable that is the result of a run, or None."""
    name: str | None = recipe.get("final_output", recipe.get("output"))
    return name


def when(approval: plain.Object) -> str:
    """Return whether an approval is before or after its stage."""
    named: str = of("approval", approval, "when")
    return named.removesuffix("_stage")


def default(kind: str, name: str) -> plain.Json:
    """Return the default of a field."""
    return next(one.rule["default"] for one in KINDS[kind] if one.name == name)


def of(kind: str, value: plain.Object, name: str) -> plain.Json:
    """Return a field of an object, or its default."""
    return value[name] if name in value else default(kind, name)


def json_schema(version: str = NEWEST) -> field_tables.Schema:
    """Return the schema of one version, strict: objects take only the fields that the version names."""
    kinds = field_tables.objects(KINDS, "recipe", version)
    recipe = kinds.pop("recipe")
    recipe["properties"]["schema"]["enum"] = [version]
    if version != FIRST:
        del recipe["properties"]["schema"]["default"]
        recipe["required"].append("schema")
        recipe["oneOf"] = [{"required": ["steps"]}, {"required": ["stages"]}]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:control-room:schema:amplifier:{version}",
        "title": f"Amplifier recipe {version}",
        "description": "Prompts to agents in order, with variables, conditions and loops.",
        **recipe,
        "$defs": kinds,
    }


def published() -> dict[str, field_tables.Schema]:
    """Return the schemas of all versions by the names of their files."""
    return {f"amplifier-{version}": json_schema(version) for version in VERSIONS}
