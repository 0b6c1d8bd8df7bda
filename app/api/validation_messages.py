"""Wording: what is wrong with a request's form, in the words in which use cases tell the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_TYPES = {
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "missing": "is required",
}

_LIMITS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "string_too_short": lambda limits: "must say something",
    "string_too_long": lambda limits: f"has more than {limits['max_length']} characters",
    "string_pattern_mismatch": lambda limits: f"must match {limits['pattern']}",
    "too_short": lambda limits: "must not be empty",
    "too_long": lambda limits: f"has more than {limits['max_length']} entries",
    "greater_than_equal": lambda limits: f"must be at least {limits['ge']}",
    "less_than_equal": lambda limits: f"must be at most {limits['le']}",
    "enum": lambda limits: f"must be {limits['expected']}",
    "literal_error": lambda limits: f"must be {limits['expected']}",
    "value_error": lambda limits: str(limits["error"]),
}


def told(item: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, as pydantic has found it, in our words.

    Args:
        item: One of its errors, with the context; one of a kind that is not known here keeps its own words.
    """
    kind, limits = str(item["type"]), item.get("ctx") or {}
    if kind in _TYPES:
        return _TYPES[kind]
    return _LIMITS[kind](limits) if kind in _LIMITS else str(item["msg"])
