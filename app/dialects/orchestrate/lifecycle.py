"""The lifecycle of items: where an item's file is moved (workflow-dsl, declarative task lifecycle)."""

from __future__ import annotations

from app.dialects.orchestrate import dependencies, variables
from app.domain import file_operations, plain, records
from app.engine import ports


async def apply(
    ctx: ports.Context, loop: plain.Object, key: str, place: records.Place, scope: variables.Scope, *, success: bool
) -> plain.Object | None:
    """Move an item's file, and return its entry in the state; None without a move. Errors only appear there."""
    action = loop.get("on_item_complete", {}).get("success" if success else "failure")
    if action is None:
        return None
    item, filler = scope.loops[0].item, variables.Filler(scope)
    folder = filler.text(action["move_to"])
    reported: dict[str, plain.Json] = {
        "result": "success" if success else "failure",
        "action": "move",
        "from": item,
        "to": None,
        "action_applied": False,
        "error": _problem(item, folder, filler, scope.run["root"]),
    }
    if reported["error"] is not None:
        return reported
    record = await ctx.perform(key, file_operations.MoveFile(source=item, folder=folder), place)
    if record.error is not None:
        return reported | {"error": record.error.message}
    return reported | {"to": record.output["to"], "action_applied": True}


def _problem(item: plain.Json, folder: str, filler: variables.Filler, run_root: str) -> str | None:
    if filler.gaps:
        return f"${{{filler.gaps[0].name}}} stands for nothing: {filler.gaps[0].reason}"
    if not isinstance(item, str):
        return "the item is no text, so it names no file"
    for path, problem in (
        (item, dependencies.problem(item)),
        (folder, dependencies.problem_of_target(folder, run_root)),
    ):
        if problem is not None:
            return f"the path {path!r:.200} {problem}"
    return None
