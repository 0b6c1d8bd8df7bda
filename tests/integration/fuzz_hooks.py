"""Knowledge of the fuzzer that the service's document lacks: existing objects, and a recipe that runs."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import schemathesis

from tests.integration import test_fuzz

STARTED = {"/api/runs": {"recipe_id": "draft", "args": {"scene_path": "Story/Scenes/SCN-the-arrival.md"}}}
"""Bodies that start runs or plans, by address."""

test_fuzz.KNOWN.update(json.loads(os.environ.get(test_fuzz.KNOWN_VARIABLE, "{}")))

schemathesis.hook(test_fuzz.map_path_parameters)
schemathesis.hook(test_fuzz.map_query)


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Replace the well-formed recipe name of a request with an existing one; leave faulty requests unchanged."""
    wanted = STARTED.get(context.operation.path)
    if wanted is None or not isinstance(body, dict) or not isinstance(body.get("args", {}), dict):
        return body
    named = isinstance(body.get("recipe_id"), str) and re.fullmatch(r"[a-z0-9_]{1,40}", body["recipe_id"])
    return body | wanted if named else body
