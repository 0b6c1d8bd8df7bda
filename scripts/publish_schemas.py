"""
Write the JSON Schema of each dialect's recipes to recipes/schema/, for editors.

    .venv/bin/python scripts/publish_schemas.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.dialects import registry  # noqa: E402


def text_of(dialect: str) -> str:
    """
    Return the file's content for a dialect.
    """
    return json.dumps(registry.DIALECTS[dialect].json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name in registry.DIALECTS:
        (ROOT / "recipes" / "schema" / f"{name}.json").write_text(text_of(name), encoding="utf-8")
