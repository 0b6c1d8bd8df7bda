"""The OpenAPI document as it is published in `openapi/openapi.json`."""

from __future__ import annotations

import json

from app import settings
from app.api import service


def text() -> str:
    """Return the document, the same for the same code."""
    document = service.create(settings.ServerSettings()).openapi()
    return json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
