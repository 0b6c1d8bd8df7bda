"""Make the README's screenshots: the demo's runs on the pages of a real service, in a real browser.

    .venv/bin/python scripts/screenshots.py [--folder docs/screenshots]

Needs Chromium. The example story is in a temporary folder; the agents are those of `control-room demo`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Literal

from environment import BROWSERS, ROOT

sys.path.insert(0, str(ROOT))
from playwright import sync_api

from app.cli.demo import address, command, service, tour

FOLDER = ROOT / "docs" / "screenshots"
SIZE: sync_api.ViewportSize = {"width": 1200, "height": 750}


def main() -> None:
    """Run the drafting recipe and one that asks a person, and take a screenshot of both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the files go  [default: docs/screenshots]")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lantern-") as temporary:
        project = Path(temporary) / "lantern"
        recipe_id = command.prepare(project, model=False)
        running = service.Service(project, address.free_port(0), None)
        try:
            running.start()
            _photograph(folder, *_runs(running, project, recipe_id))
        finally:
            running.kill()


def _runs(running: service.Service, project: Path, drafting: str) -> tuple[str, str]:
    """Return the page of a draft that continued after a `kill -9`, and the home page with an open gate."""
    shown = tour.Tour(running, project, drafting, "scripted agents")
    shown.find_contradictions()
    draft = shown.draft_through_a_kill()
    body = {"recipe_id": "publish_draft", "description": "Publish scene 22", "args": {"draft": draft}}
    *_, run = running.follow(str(running.post("/api/runs", body)["run_id"]))
    assert run["status"] == "waiting", run
    # The agent hangs in this run, so that one run is running.
    running.script_writer(hangs=True)
    following = running.follow(str(running.post("/api/runs", {"recipe_id": drafting, **tour.DRAFTING})["run_id"]))
    next(run for run in following if any(step["status"] == "running" for step in run["steps"]))
    drafted = next(page for recipe_id, page in shown.pages.values() if recipe_id == drafting)
    return drafted, f"{running.url}/"


def _photograph(folder: Path, drafted: str, home: str) -> None:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit(f"no browser: install one of {', '.join(BROWSERS)}")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        _shoot(browser, drafted, "It is done.", "light", folder / "run-light.png")
        _shoot(browser, home, "Publish Story", "dark", folder / "home-dark.png")
        browser.close()


def _shoot(browser: sync_api.Browser, page: str, shows: str, scheme: Literal["light", "dark"], target: Path) -> None:
    with browser.new_context(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce") as context:
        tab = context.new_page()
        tab.goto(page)
        sync_api.expect(tab.locator("main")).to_contain_text(shows, timeout=60_000)
        # Wait for the parts that come by requests of their own: the graph of a run, the questions of the home page.
        tab.locator("svg .node, [data-gate]").first.wait_for(timeout=60_000)
        tab.screenshot(path=target)
    print(f"{target}  {target.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
