"""Session plans in files: what `POST /api/sessions` takes, held to the same form."""

from __future__ import annotations

from pathlib import Path

from app.cli import given_files
from app.services.plans import requests


def read(path: Path) -> requests.NewPlan:
    """Return the plan that a file describes.

    Raises:
        errors.InputRefused: it cannot be read, or describes none; every flaw is told with its place.
    """
    import pydantic

    from app.api import errors as http_errors
    from app.api import plan_requests
    from app.api.middleware import body_limits
    from app.domain import json_text

    content = given_files.read(path)
    body_limits.check(content)
    try:
        return plan_requests.PlanBody.model_validate(json_text.read(content.decode(), exact=True)).plan(None)
    except pydantic.ValidationError as error:
        raise http_errors.unfit(error.errors(include_url=False), plan_requests.PlanBody) from error
