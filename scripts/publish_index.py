"""Write the tables of a new SQLite index, as the migrations make them, to migrations/sqlite.sql.

.venv/bin/python scripts/publish_index.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.storage.index.sql import migrations, sessions  # noqa: E402

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        engine = sessions.connect(f"sqlite:///{folder}/index.db")
        with sessions.writing(engine) as session:
            migrations.upgrade(session.connection)
            made = migrations.statements_of(session.connection)
        engine.dispose()
    (ROOT / "migrations" / migrations.NEW).write_text(made, encoding="utf-8")
