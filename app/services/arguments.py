"""Arguments of a run, validated against its recipe and completed with defaults."""

from __future__ import annotations

import copy
import difflib
import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from app import errors
from app.domain import json_schemas, json_text, json_words, library, plain

if TYPE_CHECKING:
    import jsonschema

    from app.services.story_args import Question

MISSING = "missing_arg"  # Code of a required argument that is missing and that the project does not provide.

_MESSAGE_CHARACTERS = 300
_MOST_FLAWS = 200
_MOST_NAMED = 20

Validator: TypeAlias = "jsonschema.protocols.Validator"  # Validates arguments against a schema.


def validator(recipe: library.Recipe) -> Validator:
    """Return a reusable validator of arguments for a recipe's schema; a validation takes linear time."""
    return json_schemas.validator(recipe.args_schema)


def fit(
    args: Mapping[str, plain.Json],
    recipe: library.Recipe,
    holding: Validator | None = None,
    questions: Mapping[str, Question] | None = None,
) -> dict[str, plain.Json]:
    """Return the arguments with the recipe's defaults filled in.

    Args:
        holding: The recipe's `validator`, if the caller already has it.
        questions: Questions about arguments that are missing or whose default is unsuitable in this project.

    Raises:
        errors.ArgsInvalid: names every missing, undeclared and unfit argument, at most two hundred.
        errors.RecipeInvalid: `args_schema` itself is invalid.
    """
    schema = recipe.args_schema
    filled, open_questions = completed(args, recipe), questions or {}
    missing, undeclared = [*dict.fromkeys([*_missing(filled, schema), *open_questions])], _undeclared(filled, schema)
    reported = {*missing, *undeclared}
    unfit = _unfit(filled, recipe, holding or validator(recipe))
    found = itertools.chain(
        (_missing_flaw(name, open_questions.get(name)) for name in missing),
        (_undeclared_flaw(name, schema) for name in undeclared),
        (flaw for flaw in unfit if not _repeats(flaw, reported)),
    )
    if flaws := list(itertools.islice(found, _MOST_FLAWS)):
        sentence = _sentence(recipe, missing, undeclared, flaws, open_questions)
        raise errors.ArgsInvalid(sentence, flaws=flaws, detail=_facts(missing, open_questions))
    return filled


def completed(args: Mapping[str, plain.Json], recipe: library.Recipe) -> dict[str, plain.Json]:
    """Return the arguments with the recipe's defaults filled in, without any check."""
    return _filled(dict(args), recipe.args_schema)


def check_options(options: Mapping[str, plain.Json], recipe: library.Recipe) -> None:
    """Refuse options that the recipe's language does not define.

    Raises:
        errors.RequestInvalid: `options_invalid`; names every unknown or unfit option.
    """
    if options and (found := json_schemas.flaws(recipe.options_schema, dict(options), ("options",))):
        flaws = [_as_argument(flaw, options, recipe) for flaw in found]
        message = f"recipe {recipe.recipe_id} does not take these options: {flaws[0].path} {flaws[0].message}"
        raise errors.RequestInvalid(message, code="options_invalid", flaws=flaws)


def _as_argument(flaw: errors.Flaw, options: Mapping[str, plain.Json], recipe: library.Recipe) -> errors.Flaw:
    """Explain that an unknown option is an argument, if the recipe has one of that name."""
    names = {json_text.json_path(("options", name)): name for name in options if name in declared(recipe.args_schema)}
    if flaw.code != "unknown_field" or flaw.path not in names:
        return flaw
    message = f"is an argument of the recipe, not an option of {recipe.dialect}; give it in `args`"
    return errors.Flaw(path=flaw.path, code="not_an_option", message=message)


def declared(schema: Mapping[str, plain.Json]) -> frozenset[str]:
    """Return the names of the arguments that a schema declares."""
    return frozenset(schema.get("properties") or {})


def _filled(value: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    for name, part in (schema.get("properties") or {}).items():
        if not isinstance(part, Mapping):
            continue
        if name not in value and "default" in part:
            # Copied, since the default belongs to a recipe that other runs share.
            value[name] = copy.deepcopy(part["default"])
        elif isinstance(value.get(name), Mapping):
            value[name] = _filled(dict(value[name]), part)
    return value


def _missing(args: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    return [name for name in schema.get("required") or () if name not in args]


def _undeclared(args: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    if schema.get("additionalProperties", False) is not False:
        return []
    known = declared(schema)
    return [name for name in args if name not in known]


def _missing_flaw(name: str, question: Question | None) -> errors.Flaw:
    message = f"argument {name} is required" if question is None else question.question
    return errors.Flaw(path=f"$.args.{name}", code=MISSING, message=message)


def _undeclared_flaw(name: str, schema: Mapping[str, Any]) -> errors.Flaw:
    near = difflib.get_close_matches(name[:80], sorted(declared(schema)), 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return errors.Flaw(
        path=f"$.args.{name:.80}", code="undeclared_arg", message=f"the recipe has no argument {name!r:.80}{hint}"
    )


def _unfit(args: dict[str, Any], recipe: library.Recipe, holding: Validator) -> Iterator[errors.Flaw]:
    import jsonschema
    import referencing.exceptions

    try:
        for error in holding.iter_errors(args):
            yield errors.Flaw(
                path=_path(error.absolute_path),
                code=f"args_{error.validator}",
                message=_shortened(json_words.breach(error)),
            )
    except (
        jsonschema.SchemaError,
        jsonschema.exceptions.UnknownType,
        referencing.exceptions.Unresolvable,
        RecursionError,
        AttributeError,
        TypeError,
        ValueError,
    ) as error:
        # A recipe's schema can come from any source: if the validator fails, the recipe is at fault, not the arguments.
        flaw = errors.Flaw(path="$.args_schema", message=f"args_schema cannot be used: {error!s:.200}")
        raise errors.RecipeInvalid(f"recipe {recipe.recipe_id} has a broken args_schema", flaws=[flaw]) from error


def _repeats(flaw: errors.Flaw, reported: set[str]) -> bool:
    return bool(reported) and flaw.path == "$.args" and flaw.code in ("args_required", "args_additionalProperties")


def _path(parts: Any) -> str:
    return "$.args" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _shortened(message: str) -> str:
    return message if len(message) <= _MESSAGE_CHARACTERS else f"{message[:_MESSAGE_CHARACTERS]}…"


def _sentence(
    recipe: library.Recipe,
    missing: list[str],
    undeclared: list[str],
    flaws: list[errors.Flaw],
    open_questions: Mapping[str, Question],
) -> str:
    if open_questions and not undeclared:
        further = [name for name in missing if name not in open_questions]
        needs = [f"recipe {recipe.recipe_id} needs {', '.join(further)}"] if further else []
        return " ".join([*needs, *(question.question for question in open_questions.values())])
    if missing:
        return f"recipe {recipe.recipe_id} needs {', '.join(missing)}"
    if undeclared:
        return f"recipe {recipe.recipe_id} does not take {_listed(undeclared)}"
    return f"the arguments do not match recipe {recipe.recipe_id}: {flaws[0].path} {flaws[0].message}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(f"{name:.80}" for name in names[:_MOST_NAMED]) + more


def _facts(missing: list[str], open_questions: Mapping[str, Question]) -> dict[str, plain.Json]:
    facts: dict[str, plain.Json] = {"missing": list(missing)} if missing else {}
    return facts | (
        {"questions": {name: open_questions[name].to_json() for name in open_questions}} if open_questions else {}
    )
