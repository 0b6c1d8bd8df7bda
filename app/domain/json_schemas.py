"""JSON Schemas applied to recipes: turns a validator's findings into flaws with paths and similar names."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from app import errors
from app.domain import json_text, json_words, plain, task_patterns

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

Lenience = Callable[[json_text.Parts, str], bool]
"""Returns, for a position and a keyword of the schema, whether to ignore a violation."""


class TooCostly(ValueError):
    """The application of a schema takes more checks than allowed."""


_MAX_FLAWS = 200
_MAX_HINTED = 300
_NAMES_LISTED = 12
_SHOWN_CHARACTERS = 80
_MESSAGE_CHARACTERS = 300
_STANDS_ALONE = ("$ref", "$dynamicRef", "$recursiveRef", "patternProperties")


def validator(schema: Mapping[str, plain.Json], most_checks: int | None = None) -> Validator:
    """Return a validator that fetches no references, and needs linear time for each `pattern` and `uniqueItems`.

    Args:
        most_checks: Most keywords that it applies, for schemas that refer to themselves again and again.
    """
    import jsonschema_specifications  # type: ignore[import-untyped]

    kind = _linear() if most_checks is None else _bounded(most_checks)
    made: Validator = kind(schema, registry=jsonschema_specifications.REGISTRY)
    return made


def flaws(
    schema: Mapping[str, plain.Json],
    value: plain.Json,
    base: json_text.Parts = (),
    lenient: Lenience | None = None,
    most_checks: int | None = None,
    as_first: bool = False,
) -> list[errors.Flaw]:
    """Return the flaws of a value by a schema, at most two hundred.

    Args:
        base: Path of the value in its document.
        most_checks: Most keywords that are applied.
        as_first: Whether to word them as a driver's first version does, for prompts in old journals.

    Raises:
        TooCostly: more keywords would have to be applied.
    """
    found = (
        flaw
        for error in validator(schema, most_checks).iter_errors(value)
        if lenient is None or not lenient(tuple(error.absolute_path), str(error.validator))
        for flaw in _flaws_of(error, base, as_first)
    )
    return first_flaws(found)


def first_flaws(found: Iterable[errors.Flaw]) -> list[errors.Flaw]:
    """Return the first two hundred flaws, each once, without looking for the rest."""
    return list(dict.fromkeys(itertools.islice(found, _MAX_FLAWS)))


def schema_flaws(schema: plain.Json, base: json_text.Parts = ()) -> list[errors.Flaw]:
    """Return why a recipe's schema cannot be used: it must be self-contained and describe an object."""
    if not isinstance(schema, dict):
        return [flaw(base, "wrong_type", f"must be an object, not {kind_of(schema)}")]
    found = [
        flaw((*base, *parts), "unsupported_keyword", f"{parts[-1]} cannot be used in a schema of arguments")
        for parts in _keywords(schema, ())
    ]
    found += map(_of_type, flaws(_linear().META_SCHEMA, schema, base))
    if schema.get("type", "object") != "object":
        found.append(flaw((*base, "type"), "invalid_value", "must be object: arguments have names"))
    bad_patterns = (flaw((*base, *parts), "invalid_pattern", why) for parts, why in task_patterns.faults(schema))
    return found or list(bad_patterns) or _bad_defaults(schema, base)


def args_schema_flaws(schema: plain.Json, base: json_text.Parts = (), known: Iterable[str] = ()) -> list[errors.Flaw]:
    """Return why a schema of a recipe's arguments cannot be used: it must describe each argument by an object.

    Args:
        known: Arguments that the recipe has besides those of the schema.
    """
    found = schema_flaws(schema, base)
    if found or not isinstance(schema, dict):
        return found
    meant = "must be an object, not true or false; {} allows anything"
    rules = schema.get("properties", {})
    for name in (name for name, rule in rules.items() if isinstance(rule, bool)):
        found.append(flaw((*base, "properties", name), "wrong_type", meant))
    names = {*rules, *known} if schema.get("additionalProperties", False) is False else {*schema.get("required", ())}
    # No run can have an argument that the schema requires but does not take.
    for name in (name for name in schema.get("required", ()) if name not in names):
        message = f"{name:.80} is required, but not in properties{nearest(name, names)}"
        found.append(flaw((*base, "required"), "undeclared_arg", message))
    return found


def _of_type(flaw: errors.Flaw) -> errors.Flaw:
    """Name the types of JSON Schema where a schema has another one."""
    if flaw.code != "invalid_value" or not flaw.path.endswith(".type"):
        return flaw
    return dataclasses.replace(flaw, message=f"must be a type of JSON Schema: {', '.join(json_words.TYPES)}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that is probably meant, or at the known names; unless empty, it begins with `; `.

    With very many known names the hint is empty: a text full of wrong names would take hours.
    """
    names = sorted(itertools.islice(known, _MAX_HINTED + 1))
    # Too many names to list them or to compare each of them.
    if len(names) > _MAX_HINTED:
        return ""
    near = difflib.get_close_matches(name[:_SHOWN_CHARACTERS], names, 1)
    if near:
        return f"; did you mean {near[0]}?"
    more = f" and {len(names) - _NAMES_LISTED} more" if len(names) > _NAMES_LISTED else ""
    return f"; there are {', '.join(names[:_NAMES_LISTED])}{more}" if names else ""


def kind_of(value: plain.Json) -> str:
    """Return the kind of a JSON value, in words for people."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
    return "an object"


def rule(kind: str, description: str, **limits: plain.Json) -> dict[str, plain.Json]:
    """Return the schema of a value of one type, with a description for people."""
    return {"type": kind, **limits, "description": description}


def closed(*, required: list[str], **properties: plain.Json) -> dict[str, plain.Json]:
    """Return the schema of an object that has the named properties and no others."""
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def flaw(parts: json_text.Parts, code: str, message: str) -> errors.Flaw:
    """Return a flaw at a place."""
    return errors.Flaw(path=json_text.json_path(parts), code=code, message=message[:_MESSAGE_CHARACTERS])


@functools.cache
def _linear() -> Any:
    from jsonschema import Draft202012Validator, validators

    own = {"pattern": _breaches, "uniqueItems": _repetitions}
    return validators.extend(Draft202012Validator, own)  # type: ignore[no-untyped-call]


def _bounded(most_checks: int) -> Any:
    from jsonschema import validators

    # One count for the whole check: nested keywords must not each have a budget of their own.
    done = itertools.count(1)

    def counted(check: Callable[..., Iterable[ValidationError] | None]) -> Callable[..., Iterator[ValidationError]]:
        def apply(*args: Any) -> Iterator[ValidationError]:
            if next(done) > most_checks:
                raise TooCostly(f"takes more than {most_checks} checks")
            yield from check(*args) or ()

        return apply

    checks = {keyword: counted(check) for keyword, check in _linear().VALIDATORS.items()}
    return validators.extend(_linear(), checks)  # type: ignore[no-untyped-call]


def _breaches(_: object, pattern: str, value: plain.Json, __: object) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if isinstance(value, str) and task_patterns.expression(pattern).search(value) is None:
        yield ValidationError(f"{json_words.shown(value)} does not have the form {pattern}")


def _repetitions(_: object, unique: bool, value: plain.Json, __: object) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if unique and isinstance(value, list) and len({plain.canonical(_unified(item)) for item in value}) < len(value):
        yield ValidationError(f"{json_words.shown(value)} has non-unique elements")


def _unified(value: plain.Json) -> plain.Json:
    """Return a value in which equal numbers have the same form."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _unified(item) for name, item in value.items()}
        case list():
            return [_unified(item) for item in value]
    return value


def _flaws_of(error: ValidationError, base: json_text.Parts, as_first: bool) -> Iterator[errors.Flaw]:
    place: json_text.Parts = (*base, *error.absolute_path)
    rule: Any = error.schema
    value: Any = error.instance
    limit: Any = error.validator_value
    match error.validator:
        case "required":
            yield from (flaw((*place, name), "missing_field", "is missing") for name in limit if name not in value)
        case "additionalProperties":
            known = rule.get("properties", {})
            unknown = (name for name in value if name not in known)
            yield from (
                flaw((*place, name), "unknown_field", f"is not a known field{nearest(name, known)}") for name in unknown
            )
        case "type":
            wanted = " or ".join(json_words.TYPES[kind] for kind in ([limit] if isinstance(limit, str) else limit))
            yield flaw(place, "wrong_type", f"must be {wanted}, not {kind_of(value)}")
        case "enum":
            hint = nearest(value, json_words.words(limit)) if isinstance(value, str) else ""
            yield flaw(place, "invalid_value", f"{json_words.shown(value)} is not allowed{hint}")
        case "maxLength":
            yield flaw(place, "invalid_value", f"is longer than {limit} characters")
        case "minLength":
            yield flaw(place, "invalid_value", f"is shorter than {limit} characters" if limit > 1 else "is empty")
        case "maxItems":
            yield flaw(place, "invalid_value", f"has more than {limit} items")
        case "minItems":
            yield flaw(place, "invalid_value", f"has fewer than {limit} items" if limit > 1 else "is empty")
        case _:
            yield flaw(place, "invalid_value", error.message if as_first else json_words.breach(error))


def _keywords(schema: plain.Json, parts: json_text.Parts) -> Iterator[json_text.Parts]:
    match schema:
        case dict():
            for name, item in schema.items():
                if name in _STANDS_ALONE and not (parts and parts[-1] == "properties"):
                    yield (*parts, name)
                elif name not in ("default", "const", "enum", "examples"):
                    yield from _keywords(item, (*parts, name))
        case list():
            for index, item in enumerate(schema):
                yield from _keywords(item, (*parts, index))


def _bad_defaults(schema: Mapping[str, Any], base: json_text.Parts) -> list[errors.Flaw]:
    return [
        found
        for name, rule in schema.get("properties", {}).items()
        if isinstance(rule, dict) and "default" in rule
        for found in flaws(rule, rule["default"], (*base, "properties", name, "default"))
    ]
