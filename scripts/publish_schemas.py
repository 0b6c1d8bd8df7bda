"""Write the JSON Schema of each dialect's recipes, and of agents.json, to recipes/schema/, for editors.

.venv/bin/python scripts/publish_schemas.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.agents import roster_rules  # noqa: E402
from app.dialects import registry  # noqa: E402
from app.dialects.amplifier import schema as amplifier  # noqa: E402
from app.dialects.orchestrate import schema as orchestrate  # noqa: E402


def text_of(schema: Mapping[str, Any]) -> str:
    """Return the file's content for a schema."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    versioned = {"amplifier": amplifier.published(), "orchestrate": orchestrate.published()}
    schemas = {name: dialect.json_schema() for name, dialect in registry.DIALECTS.items() if name not in versioned}
    for name, schema in {**schemas, **versioned["amplifier"], **versioned["orchestrate"]}.items():
        (ROOT / "recipes" / "schema" / f"{name}.json").write_text(text_of(schema), encoding="utf-8")
    (ROOT / "recipes" / "schema" / "agents.json").write_text(text_of(roster_rules.SCHEMA), encoding="utf-8")
