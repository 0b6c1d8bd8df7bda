"""Dry runs: show the steps that would run, and the flaws of workflows, without starting a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app import errors
from app.cli import exit_codes as common
from app.cli import formats, terminal
from app.cli.exit_codes import ExitCode
from app.cli.orchestrate import exit_codes, workflows
from app.cli.orchestrate.places import Place
from app.cli.orchestrate.workflows import Workflow


def plan(workflow: Workflow, context: Mapping[str, Any], *, as_json: bool) -> int:
    """Print the steps of a workflow in the order of a run.

    Raises:
        errors.NotReady: the program of a provider is not installed.
    """
    if lacks := workflow.lacks():
        raise errors.NotReady(f"{workflow.shown} cannot run here: {lacks[0].message}", flaws=lacks)
    document = workflow.recipe.document
    if as_json:
        answer = {
            "valid": True, "workflow_file": workflow.shown, "workflow_checksum": workflow.checksum,
            "context": {**document.get("context", {}), **context}, "steps": document["steps"],
        }  # fmt: skip
        terminal.say_json(answer)
        return ExitCode.DONE
    terminal.say(f"{workflow.shown} is valid; nothing is started")
    for line in _lines(document["steps"], ""):
        terminal.say(line)
    return ExitCode.DONE


def validate(place: Place, paths: Sequence[Path], *, as_json: bool) -> int:
    """Check workflows, and report all their flaws."""
    examined = [_examined(place, path) for path in paths]
    if as_json:
        terminal.say_json(examined)
    else:
        for one in examined:
            terminal.say_block(formats.verdict(one["workflow_file"], one))
    return ExitCode.DONE if all(one["ready"] for one in examined) else ExitCode.USAGE


def refuse(error: errors.ControlRoomError, *, as_json: bool) -> int:
    """Print as JSON, if requested, why no run was started; return the exit code.

    Raises:
        errors.ControlRoomError: the output is for people; the caller prints it.
    """
    if not as_json:
        raise error
    flaws = workflows.flaws(error) if isinstance(error, errors.InputRefused) else []
    refusal = {"error": {"code": error.code, "message": error.message, "flaws": flaws}}
    terminal.say_json({"status": "refused", **refusal, "exit_code": int(exit_codes.of_error(error))})
    terminal.warn(*(f"orchestrate: {line}" for line in common.sentences(error)))
    return exit_codes.of_error(error)


def _examined(place: Place, path: Path) -> dict[str, Any]:
    try:
        lacks = [lack.to_json() for lack in workflows.read(path, place).lacks()]
        found = {"valid": True, "flaws": [], "ready": not lacks, "lacks": lacks}
    except errors.InputRefused as error:
        found = {"valid": False, "flaws": workflows.flaws(error), "ready": False, "lacks": []}
    return {"workflow_file": str(path), **found}


def _lines(steps: Sequence[Mapping[str, Any]], indent: str) -> Iterator[str]:
    for number, step in enumerate(steps, 1):
        yield f"{indent}[{number}/{len(steps)}] {step['name']}: {formats.cell(_what(step))}"
        if "for_each" in step:
            yield from _lines(step["for_each"]["steps"], f"{indent}  ")


def _what(step: Mapping[str, Any]) -> str:
    condition = "if " + ", ".join(step["when"]) + ": " if "when" in step else ""
    if "for_each" in step:
        loop = step["for_each"]
        return f"{condition}for each of {loop.get('items_from') or len(loop['items'])}"
    if "wait_for" in step:
        return f"{condition}wait for {step['wait_for']['glob']}"
    if "provider" in step:
        return f"{condition}ask {step['provider']}"
    return f"{condition}{' '.join(step['command'])}"
