"""Calls as performers receive them; a test can examine the logs and blobs that they leave."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.domain import operations, plain, records, runs
from app.engine import ports


@dataclass
class Harness:
    """Make calls, with the blobs that they can read and the logs that they write."""

    working_dir: Path = Path("/nowhere")
    blobs: dict[str, Any] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def call(
        self, operation: operations.Operation, key: str = "brief", attempt: int = 1, due_at: str | None = None
    ) -> ports.Call:
        """Return one attempt of an operation."""
        return ports.Call(
            run=runs.RunStart(
                run_id="20260210T143000Z-abc123",
                recipe_id="sample",
                dialect="control_room",
                driver_version=1,
                created_at="2026-02-10T14:30:00.000Z",
                recipe={},
                recipe_sha256="",
                session_id="sess_1",
                working_dir=str(self.working_dir),
                options=self.options,
            ),
            key=key,
            attempt=attempt,
            operation=operation,
            place=records.Place(step_id=key, notes=self.notes),
            due_at=due_at,
            read_blob=self._read_blob,
            write_log=self._write_log,
        )

    def blob(self, content: Any) -> dict[str, Any]:
        """Store a content as a blob and return the part of an operation that refers to it."""
        encoded = plain.content(content)
        blob = records.BlobRef(sha256=plain.sha256(encoded), size_bytes=len(encoded), text=isinstance(content, str))
        self.blobs[blob.sha256] = content
        return {"blob": blob.to_json()}

    async def _read_blob(self, blob: records.BlobRef) -> plain.Json:
        return self.blobs[blob.sha256]

    async def _write_log(self, name: str, text: str) -> None:
        self.logs[name] = text
