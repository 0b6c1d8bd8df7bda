"""The JSON Schema of agent_recipes (agent-recipes, 1), and the arguments of every run."""

from __future__ import annotations

from app.domain import frozen_agents, plain
from app.domain.json_schemas import closed, rule

VERSION = 1  # Increased if a recipe that was valid becomes invalid.

TIERS = ("haiku", "sonnet", "opus")
"""Tiers of models; each backend has a model for each tier (agent-recipes, 1)."""

GUARDRAILS: plain.Object = {"maxStepVisits": 3, "maxTotalSteps": 100, "exitOnOther": True}
"""Defaults of the guardrails."""

EXIT, RESTART = "exit", "restart-new-session"  # Actions of transitions.
OTHER = "other"  # The outcome that an agent reports in an unforeseen situation.
DEFAULT_BACKEND = "claude-code"  # Backend if none is named.
RECIPE_ID = r"^[a-z0-9]+(-[a-z0-9]+)*$"  # Form of recipe ids: kebab-case.
NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"  # Form of step names and outcomes; keys of steps contain them.

_ENTRY = r"^(\$include|[A-Za-z0-9][A-Za-z0-9_-]{0,63})$"
_MOST_COUNT = 100_000
_BLANK = r"\S"
_WORD = "must consist of letters, digits, _ and -, at most 64, and begin with a letter or digit"

FORMS = {
    RECIPE_ID: "must be in kebab-case, as in review-and-commit",
    NAME: _WORD,
    _ENTRY: _WORD,
    _BLANK: "must not be blank",
}
"""Forms of names and texts, in words."""

_Schema = dict[str, plain.Json]

RUN_ARGS: plain.Object = {
    "backend": {
        "type": "string",
        "pattern": r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
        "default": DEFAULT_BACKEND,
        "description": "Backend of all steps.",
    },
    "model": rule("string", "Model tier of all steps; overrides those of the steps and the recipe.", enum=list(TIERS)),
    "max_steps": rule(
        "integer", "Maximum number of steps; overrides the recipe's `maxTotalSteps`.", minimum=1, maximum=_MOST_COUNT
    ),
    "max_visits": rule(
        "integer",
        "Maximum number of visits per step; overrides the recipe's `maxStepVisits`.",
        minimum=1,
        maximum=_MOST_COUNT,
    ),
    "max_restarts": {
        "type": "integer",
        "minimum": 0,
        "maximum": _MOST_COUNT,
        "description": "Maximum number of restarts in a new session; unlimited by default.",
    },
    "system_prompt": rule(
        "string", "Text to append to the backend's own system prompt.", minLength=1, maxLength=100_000
    ),
    "agent_session_id": {
        "type": "string",
        "pattern": r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}$",
        "description": "Existing conversation that the run continues.",
    },
}
"""Arguments that every run of every recipe takes, besides the recipe's own."""


def json_schema() -> _Schema:
    """Return the schema, strict: objects take only the fields that it names."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:control-room:schema:agent_recipes:{VERSION}",
        "title": "Agent recipe",
        "description": "A state machine: each step is a prompt, and the outcome that the agent reports selects "
        "the next step.",
        **_recipe(),
        "$defs": {
            "guardrails": _guardrails(),
            "step": _step(),
            "shared_step": _shared_step(),
            "transition": _transition(),
            "next_step": _next_step(),
            "exit": _exit(),
            "restart": _restart(),
        },
    }


def args_schema(own: plain.Object) -> _Schema:
    """Return the schema of a run's arguments: those that the recipe declares, and those that every run takes."""
    declared = own.get("properties") or {}
    return {"type": "object", "additionalProperties": False, **own, "properties": {**declared, **RUN_ARGS}}


def _recipe() -> _Schema:
    return closed(
        required=["id", "label", "description", "initialStep", "steps", "guardrails"],
        **{"$schema": _text("Address of this schema, for editors.", maxLength=300)},
        id=_text("Unique id; a project's recipe shadows a bundled recipe with the same id.", pattern=RECIPE_ID)
        | {"maxLength": 128},
        label=_text("Display name.", minLength=1, maxLength=200),
        description=_text("What the recipe does, in one line.", minLength=1, maxLength=1000),
        initialStep=_text("First step of a run."),
        steps=_steps(),
        guardrails={"$ref": "#/$defs/guardrails", "description": "Limits that stop a runaway run."},
        model=_tier("Model tier of steps that do not set one."),
        args_schema={
            "type": "object",
            "description": "JSON Schema of the recipe's own arguments, which its prompts can use.",
        },
    )


def _steps() -> _Schema:
    shared, own = {"$ref": "#/$defs/shared_step"}, {"$ref": "#/$defs/step"}
    files = _text("File with steps, as a path relative to the recipe folder.")
    return {
        "type": "object",
        "propertyNames": {"pattern": _ENTRY},
        "maxProperties": 200,
        "properties": {
            "$include": {
                "type": ["string", "array"],
                "items": files,
                "maxItems": 20,
                "description": "File or files whose steps are included; the recipe's own steps take precedence.",
            }
        },
        "additionalProperties": {"if": {"required": ["$ref"]}, "then": shared, "else": own},
        "description": "All steps by name.",
    }


def _step() -> _Schema:
    fields = _step_fields()
    return closed(required=["prompt", "outcomes", "onOutcome"], **fields)


def _shared_step() -> _Schema:
    reference = _text("`FILE#/NAME`: the step to use; the other fields here override its fields.")
    return closed(required=["$ref"], **{"$ref": reference}, **_step_fields())


def _step_fields() -> _Schema:
    return {
        "prompt": _text("The whole instruction for the agent; can contain `{{args.NAME}}`.", minLength=1),
        "outcomes": {
            "type": "array",
            "items": {"type": "string", "pattern": NAME},
            "minItems": 1,
            "maxItems": 50,
            "uniqueItems": True,
            "description": "All outcomes that the agent may report.",
        },
        "onOutcome": rule(
            "object", "Transition for each outcome.", additionalProperties={"$ref": "#/$defs/transition"}
        ),
        "model": _tier("Model tier of this step."),
        **frozen_agents.LENGTH_FIELDS,
        **frozen_agents.IDLE_FIELDS,
    }


def _guardrails() -> _Schema:
    visits = "Maximum number of visits of one step; one more ends the run."
    total = "Maximum total number of steps; one more ends the run."
    return closed(
        required=[],
        maxStepVisits=_count(visits) | {"default": GUARDRAILS["maxStepVisits"]},
        maxTotalSteps=_count(total) | {"default": GUARDRAILS["maxTotalSteps"]},
        exitOnOther={
            "type": "boolean",
            "default": GUARDRAILS["exitOnOther"],
            "description": "Whether the outcome `other` ends the run regardless of its transition.",
        },
    )


def _transition() -> _Schema:
    restart: _Schema = {"required": ["action"], "properties": {"action": {"const": RESTART}}}
    return {
        "type": "object",
        "if": {"required": ["nextStep"]},
        "then": {"$ref": "#/$defs/next_step"},
        "else": {"if": restart, "then": {"$ref": "#/$defs/restart"}, "else": {"$ref": "#/$defs/exit"}},
    }


def _next_step() -> _Schema:
    return closed(required=["nextStep"], nextStep=_text("Next step."), reason=_reason_of_other())


def _exit() -> _Schema:
    return closed(
        required=["action", "reason"],
        action=_action("Ends the run."),
        reason=_text("Reason that is reported when the run ends.", pattern=_BLANK, maxLength=200),
    )


def _restart() -> _Schema:
    return closed(
        required=["action", "recipeId"],
        action=_action("Starts a recipe in a new conversation."),
        recipeId=_text("Recipe to start, from its initial step.", pattern=RECIPE_ID),
        reason=_reason_of_other(),
    )


def _action(description: str) -> _Schema:
    return {"type": "string", "enum": [EXIT, RESTART], "description": description}


def _reason_of_other() -> _Schema:
    return _text("Only for the outcome `other`: reason that is reported if `exitOnOther` ends the run.", pattern=_BLANK)


def _tier(description: str) -> _Schema:
    return {"type": "string", "enum": list(TIERS), "description": description}


def _count(description: str) -> _Schema:
    return {"type": "integer", "minimum": 1, "maximum": _MOST_COUNT, "description": description}


def _text(description: str, **limits: plain.Json) -> _Schema:
    return rule("string", description, **limits)
