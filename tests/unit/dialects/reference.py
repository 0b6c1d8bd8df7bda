"""References of languages as tests read them: the tables below each heading, and their names for rules of a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def tables(text: str, bare: int | None = None) -> dict[str, list[list[str]]]:
    """Return the rows of all tables below each heading whose first cell is a name in backticks.

    Args:
    bare: How many leading cells are returned without their backticks; None: all.
    """
    found: dict[str, list[list[str]]] = {}
    title = ""
    for line in text.splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
        elif line.startswith("| `"):
            cells = [cell.strip(" |") for cell in line.strip().removesuffix("|").split(" | ")]
            split = len(cells) if bare is None else bare
            found.setdefault(title, []).append([*(cell.strip("`") for cell in cells[:split]), *cells[split:]])
    return found


def kind(rule: Mapping[str, Any]) -> str:
    """Return the reference's name for a schema's rule: a part by its name, lists and objects with their content."""
    if "$ref" in rule:
        return str(rule["$ref"]).rpartition("/")[2]
    # A rule without a type lists the permitted words.
    told = rule.get("type", "string")
    if isinstance(told, list):
        return " or ".join(told)
    if told == "array":
        return f"list of {kind(rule['items']) if 'items' in rule else 'any'}"
    inner = rule.get("additionalProperties") if told == "object" else None
    return f"object of {kind(inner)}" if inner and inner.keys() & {"type", "$ref"} else str(told)
