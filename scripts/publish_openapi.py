"""Write the OpenAPI document to `openapi/openapi.json`, from the code."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def main() -> None:
    """Write the document."""
    from app.api import routes

    target = ROOT / "openapi" / "openapi.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(routes.openapi_text(), encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main()
