"""The command `demo`."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from app import errors
from app.cli import boundary, exit_codes, terminal
from app.cli.demo import address

_FILES = Path(__file__).parent / "files"
_RECIPES = {
    "find_contradictions.json": "recipes/find_contradictions.json",
    "publish_draft.yaml": "recipes/amplifier/publish_draft.yaml",
}
_SCRIPTED_AGENTS = {"agents.json": "agents.json", "replies.json": "replies.json"}
_KEYS = "keys.json"
_MODEL = "a model of 135 million parameters, which only shows the machinery"
_MODEL_TOKENS = 100
_NEXT = """\
   cd {project}
   control-room runs list                 # the runs of this demo; `runs show ID`, `runs steps ID`
   control-room issues list               # the contradictions
   With a real agent: stop the service with Ctrl-C if it is up, and write {{"default_backend": "claude-code"}}
   to {project}/.control-room/agents.json;
   `control-room agents check` lists the backends that work on this machine. Then:
   control-room plan create "Write scene 23 and check consistency"
   Your own project: `control-room init --project DIR`, then `control-room serve --project DIR`."""


@click.command()
@click.option(
    "--model", is_flag=True, help="Ask a small local model (93 MB, downloaded once) instead of scripted agents."
)
@click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for the demo; its files are not overwritten.  [default: a new temporary folder]",
)
@click.option(
    "--port", default=address.PORT, help=f"Port of the service; if it is taken, a free one.  [default: {address.PORT}]"
)
@click.option("--open", "opens", is_flag=True, help="Open the page of the drafting run in a browser.")
@click.option("--exit", "ends", is_flag=True, help="Stop the service at the end of the demo.")
def demo(model: bool, project: Path | None, port: int, opens: bool, ends: bool) -> int:
    """Show Control Room on a small story: contradictions, a kill -9 in the middle of a draft, a gate.

    It needs no model, no key and no network. At the end, the service continues to show the runs until Ctrl-C.
    """
    from app.cli.demo import service, tour, weights

    folder = (project or Path(tempfile.mkdtemp(prefix="control-room-demo-"))).resolve()
    port = address.free_port(port)
    terminal.say(f"== Control Room demo: {address.of(port)}/  in {folder}")
    recipe_id = prepare(folder, model=model)
    running = service.Service(folder, port, weights.fetch() if model else None)

    def stop() -> None:
        running.stop()
        terminal.say(f"== stopped; the demo's folder is {folder}")

    try:
        with boundary.stopping(stop):
            running.start()
            terminal.say("   the service answers there now; its log is .control-room/demo.log")
            shown = tour.Tour(running, folder, recipe_id, _MODEL if model else "scripted agents", opens=opens)
            shown.find_contradictions()
            shown.ask_about(shown.draft_through_a_kill())
            tour.heading("what to do next")
            if shutil.which("control-room") is None:
                terminal.say(f'   export PATH="{Path(sys.executable).parent}:$PATH"')
            terminal.say_block(_NEXT.format(project=folder))
            if not ends:
                shown.say_pages()
                terminal.say("   The service stays up. Ctrl-C stops it.")
                running.wait()
    except KeyboardInterrupt:
        return exit_codes.ExitCode.INTERRUPTED
    return exit_codes.ExitCode.DONE


def prepare(folder: Path, *, model: bool) -> str:
    """Put the example story, the demo's recipes and its agents into the folder; return the id of the drafting recipe.

    Raises:
        errors.ConfigurationError: `demo_folder_used`, the folder is a project with keys or agents of its own.
    """
    from app import bootstrap, resources

    # Before a file is written: the folder may be a project in use.
    _refuse_used(folder / ".control-room", () if model else _SCRIPTED_AGENTS)
    folder.mkdir(parents=True, exist_ok=True)
    bootstrap.add_sample(folder, "story")
    for name, place in (_RECIPES if model else _RECIPES | _SCRIPTED_AGENTS).items():
        _write(folder / ".control-room" / place, (_FILES / name).read_text(encoding="utf-8"))
    drafting = resources.bundled("recipes", "control_room", "creative_draft_scene.json").read_text(encoding="utf-8")
    recipe: dict[str, Any] = json.loads(drafting)
    if not model:
        return str(recipe["recipe_id"])
    # The same recipe with short replies: the model writes about ten words a second.
    brief = {**recipe, "recipe_id": "draft_briefly", "label": "Draft a scene, briefly", "task_patterns": []}
    brief["phase_b"] = [step | {"max_output_tokens": _MODEL_TOKENS} for step in recipe["phase_b"]]
    brief.pop("$schema")
    _write(folder / ".control-room" / "recipes" / "draft_briefly.json", json.dumps(brief, indent=2))
    return str(brief["recipe_id"])


def _refuse_used(data: Path, agents: Iterable[str]) -> None:
    others = [name for name in agents if (data / name).exists() and _is_other(data / name)]
    if (data / _KEYS).exists():
        others.append(_KEYS)
    if others:
        raise errors.ConfigurationError(
            f"the demo needs a folder without keys and agents of its own, and {data} has {', '.join(others)};"
            " give another one with --project, or none",
            code="demo_folder_used",
        )


def _is_other(file: Path) -> bool:
    from app.cli.demo import service

    try:
        found, own = (json.loads(path.read_text(encoding="utf-8")) for path in (file, _FILES / file.name))
    except (OSError, ValueError):
        return True
    if not isinstance(found, dict):
        return True
    # A killed demo has left a draft that hangs first.
    draft, own_draft = found.pop("draft", None), own.pop("draft", None)
    return found != own or draft not in (own_draft, [service.HANG, own_draft])


def _write(target: Path, text: str) -> None:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
