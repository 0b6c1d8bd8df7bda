"""The schema of recipes: one table for each kind of object, from which JSON Schemas and load-time checks are made."""

from __future__ import annotations

from collections.abc import Mapping

from app.dialects import field_tables
from app.dialects.field_tables import MOST_SECONDS, NO, SECRETS, WORD, Field, field, part, several
from app.domain import frozen_agents, plain

VERSIONS = ("1.1", "1.7")  # Versions of the language, oldest first; a recipe that names none is of the first.
FIRST, NEWEST = VERSIONS[0], VERSIONS[-1]  # The version of the document, and the one that has every field.
TYPES = ("agent", "bash", "recipe")  # What a step can be, by its `type`.
BEFORE, AFTER = "before", "after"  # Where the approval of a stage stands.
SUBSTEPS, STEPS = "substeps", "steps"
"""Names of a step's own steps; the result of the second is that of the last of them."""
COUNTERS = ("_loop_index", "_loop_iteration")
"""Variables that count the iterations of a loop with a condition, from 0 and from 1."""
APPROVE, DENY = "approve", "deny"  # Decisions on an approval.
FAIL, CONTINUE, SKIP_REMAINING = "fail", "continue", "skip_remaining"  # What follows a step that failed.
DEFAULT_ITEM = "item"  # Loop variable where none is named.
DEFAULT_ITERATIONS = 100  # Most iterations of a loop that names no limit.
DEFAULT_TIMEOUT = 600  # Seconds that a step may take where it names no limit.
VARIABLE = r"^[A-Za-z0-9_]{1,100}$"  # Form of the names of variables that steps fill.
STEP_ID = r"^[A-Za-z0-9_-]{1,50}$"  # Form of the ids of steps, of which keys are made.
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
        field("max_iterations", _COUNT | {"default": DEFAULT_ITERATIONS}, "Most iterations; more fail the run."),
        _later("index_as", _NAME, "Variable that holds the position, from 0."),
        _later(
            "parallel",
            {"type": ["boolean", "integer"], "minimum": 1, "maximum": 1_000, "default": False},
            "Whether iterations or sub-steps run at the same time; a number limits how many.",
        ),
        _later("continue_on_error", NO, "Whether the other iterations continue when one has failed."),
        _later("break_if", _CONDITION, "Looked at after each iteration; if it holds, the loop is over.", filled=True),
    )


KINDS: Mapping[str, tuple[Field, ...]] = {
    "recipe": (
        field("schema", {"enum": list(VERSIONS), "type": "string", "default": FIRST}, "Version of the language."),
        _must("name", {"type": "string", "pattern": r"^[A-Za-z0-9_-]{1,100}$"}, "Id, unique among all recipes."),
        _must(
            "description", {"type": "string", "pattern": r"\S", "maxLength": 500}, "What it does, in one paragraph."
        ),
        _must("version", {"type": "string", "pattern": _SEMVER, "maxLength": 200}, "Its own version, semantic."),
        field("author", WORD, "Who wrote it."),
        field("created", {"type": "string", "pattern": _MOMENT}, "When it was written, as ISO 8601."),
        field("updated", {"type": "string", "pattern": _MOMENT}, "When it was last changed, as ISO 8601."),
        field("tags", {"type": "array", "items": WORD, "maxItems": 100}, "Words to find it by."),
        field("context", _VALUES, "Variables and their values; one that is empty must be given to a run."),
        _later("args_schema", {"type": "object"}, "JSON Schema of what a run is given: types, defaults, what must be."),
        _later("secrets", SECRETS, "Secrets of every command, as `secrets` of a step."),
        part("recursion", "recursion", "Limits of recipes that run recipes.", since=NEWEST),
        part("rate_limiting", "rate_limiting", "How fast models are asked.", since=NEWEST),
        Field(
            name="steps",
            rule=several("step"),
            meaning="What is done, in order.",
            below="step",
            required_in=(FIRST,),
        ),
        _later("stages", several("stage"), "Groups of steps with approvals, in place of `steps`.", below="stage"),
        _later("final_output", _NAME, "Variable that is the result of the run."),
        _later("output", _NAME, "Another name of `final_output`."),
    ),
    "stage": (
        _must("name", {"type": "string", "pattern": STAGE_NAME}, "Unique among the stages."),
        field("description", _TEXT, "What it is for, for people."),
        _must("steps", several("step"), "What is done in it, in order.", below="step"),
        part("approval", "approval", "Question to a person."),
    ),
    "approval": (
        _must("required", {"type": "boolean"}, "Whether the question is asked at all."),
        field("prompt", _TEXT, "What the person is asked.", filled=True),
        field("timeout", _SECONDS | {"minimum": 0, "default": 0}, "Seconds to wait for an answer; 0: for ever."),
        field("default", {"type": "string", "enum": [APPROVE, DENY], "default": DENY}, "Decision when time is up."),
        field(
            "when",
            {"type": "string", "enum": [BEFORE, AFTER, f"{BEFORE}_stage", f"{AFTER}_stage"], "default": AFTER},
            "Before or after the stage.",
        ),
        field("output", _NAME, "Variable that gets `decision`, `message` and `by_default`."),
    ),
    "step": (
        _must("id", _ID, "Unique in the recipe."),
        _later("type", {"type": "string", "enum": list(TYPES), "default": TYPES[0]}, "What the step is."),
        Field(
            name="agent",
            rule={"type": "string", "pattern": AGENT},
            meaning="Agent that is asked.",
            required_in=(FIRST,),
        ),
        field("mode", WORD, "Mode of the agent, told before the prompt."),
        Field(name="prompt", rule=_TEXT, meaning="The prompt for the agent.", filled=True, required_in=(FIRST,)),
        _later("command", _TEXT, "What bash executes; values reach it as variables of the shell.", filled=True),
        _later("cwd", _REFERENCE, "Folder that the command runs in, inside the workspace.", filled=True),
        _later(
            "env",
            field_tables.ENV,
            "Variables of the command's environment.",
            filled=True,
        ),
        _later("secrets", SECRETS, "Environment variables that the command gets; their values are masked."),
        _later("output_exit_code", _NAME, "Variable that gets the exit code; no code fails the step then."),
        _later("recipe", {"type": "string", "pattern": RECIPE}, "Recipe that is run, by its id or its file."),
        _later("context", _VALUES, "All that the recipe is given.", filled=True),
        _later("substeps", several("step"), "Steps that are taken as one, in order or in parallel.", below="step"),
        _later(
            "steps",
            several("step"),
            "Another name of `substeps`; the result is that of the last one.",
            below="step",
        ),
        field("condition", _CONDITION, "What must hold; otherwise the step is skipped.", filled=True),
        field("foreach", _REFERENCE, "List; the step is taken once for each item.", filled=True),
        *_loop_fields()[:1],
        field("collect", _NAME, "Variable that gets the list of all results."),
        *_loop_fields()[1:],
        part("nested_foreach", "nested_foreach", "Loop inside of the loop.", since=NEWEST),
        _later("while_condition", _CONDITION, "The step is repeated as long as it holds.", filled=True),
        _later("max_while_iterations", _COUNT, "Another name of `max_iterations` beside `while_condition`."),
        _later("update_context", _VALUES, "Variables that each iteration changes, and their values.", filled=True),
        _later("break_when", _CONDITION, "Looked at after each iteration; if it holds, the loop is over.", filled=True),
        field("output", _NAME, "Variable that gets the result."),
        _later("parse_json", {"type": "boolean"}, "`true`: the result must hold JSON; `false`: it stays text."),
        _later("reply_schema", {"type": "object"}, "JSON Schema of an object; the reply must be one that fits."),
        field("agent_config", _SETTINGS, "Settings of the agent that differ in this step."),
        _later("provider", WORD, "Backend of the agent."),
        _later("model", _MODEL, "Model, a pattern of models as `claude-haiku-*`, or one of haiku, sonnet, opus."),
        _later("provider_preferences", several("preference"), "Backends and models, best first.", below="preference"),
        _later("max_tokens", _MOST_TOKENS, "Longest reply, in tokens."),
        field("timeout", _SECONDS | {"default": DEFAULT_TIMEOUT}, "Seconds that each try may take."),
        part("retry", "retry", "Further tries after errors that pass."),
        field(
            "on_error",
            {"type": "string", "enum": [FAIL, CONTINUE, SKIP_REMAINING], "default": FAIL},
            "What follows when the step has failed.",
        ),
        field(
            "depends_on",
            {"type": "array", "items": _ID, "maxItems": 1_000, "uniqueItems": True},
            "Steps before this one that it needs.",
        ),
    ),
    "nested_foreach": (
        _must("foreach", _REFERENCE, "List of the inner loop; may name variables of the outer one.", filled=True),
        *_loop_fields(),
        part("nested_foreach", "nested_foreach", "A loop inside of this one."),
    ),
    "retry": (
        field("max_attempts", {"type": "integer", "minimum": 1, "maximum": 100, "default": 3}, "Tries in all."),
        field(
            "backoff",
            {"type": "string", "enum": ["exponential", "linear"], "default": "exponential"},
            "Whether the delay doubles each time, or grows by its first length.",
        ),
        field("initial_delay", _SECONDS | {"minimum": 0, "default": 5}, "Seconds before the second try."),
        field("max_delay", _SECONDS | {"minimum": 0, "default": 300}, "Longest delay, in seconds."),
    ),
    "recursion": (
        field("max_depth", _COUNT | {"maximum": 20, "default": 5}, "Runs above a run that may still start one."),
        field("max_total_steps", _COUNT, "Maximum number of steps of a run, with iterations; unlimited by default."),
    ),
    "rate_limiting": (
        field("max_concurrent_llm", _COUNT | {"maximum": 1_000}, "Most agents that are asked at a time."),
        field("min_delay_ms", _MS, "Pause before each prompt."),
        part("backoff", "backoff", "Further tries of prompts that were refused as too many."),
    ),
    "backoff": (
        field("max_attempts", {"type": "integer", "minimum": 1, "maximum": 100, "default": 5}, "Tries in all."),
        field("initial_delay_ms", _MS | {"default": 1_000}, "Delay before the second try."),
        field("max_delay_ms", _MS | {"default": 60_000}, "Longest delay."),
        field("enabled", {"type": "boolean", "default": True}, "Whether refused prompts are repeated at all."),
        field(
            "multiplier",
            {"type": "number", "minimum": 1, "maximum": 100, "default": 2},
            "What each further delay is multiplied by.",
        ),
    ),
    "preference": (
        _must("provider", WORD, "Backend."),
        field("model", _MODEL, "Model, a pattern of models as `claude-haiku-*`, or one of haiku, sonnet, opus."),
    ),
}  # fmt: skip
"""All kinds of objects, each with its fields in order."""


def body_of(step: plain.Object) -> str | None:
    """Return the field that holds the steps inside of a step, or None."""
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
    """Return what holds where a field is left out."""
    return next(one.rule["default"] for one in KINDS[kind] if one.name == name)


def of(kind: str, value: plain.Object, name: str) -> plain.Json:
    """Return a field of an object, or what holds where it is left out."""
    return value[name] if name in value else default(kind, name)


def json_schema(version: str = NEWEST) -> field_tables.Schema:
    """Return the schema of one version, strict: no object takes a field that the version does not name."""
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
