"""JSON sources: the texts of recipes in JSON."""

from __future__ import annotations

from app import errors
from app.domain import json_text, plain


def document(source: str) -> plain.Json:
    """Return the value of a recipe's text.

    Raises:
        errors.RecipeInvalid: with every flaw of the text.
    """
    try:
        return json_text.read(source, exact=True)
    except errors.InputRefused as error:
        message, flaws = error.message, error.flaws
        if flaws[0].code == "syntax" and not source.strip():
            message, flaws = "the text is empty", (errors.Flaw(path="$", code="syntax", message="is empty", line=1),)
        raise errors.RecipeInvalid(f"The recipe is not valid: {message}", flaws=flaws) from error
