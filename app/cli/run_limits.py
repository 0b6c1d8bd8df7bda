"""The use cases of waiting and limited runs: each with its route over HTTP, and what answers it in process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.cli.client import Answer, use_case

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient


@use_case("GET /api/runs/{run_id}/why")
async def explain_run(folder: FolderClient, run_id: str) -> Answer:
    """Return why a run does not move."""
    return (await folder.application.explanations.why(run_id)).to_json()
