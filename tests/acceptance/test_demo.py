"""`control-room demo`, and the first command of the README, which starts it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from app import errors, resources
from app.cli.demo import command
from app.processes import process_tree

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-P", "-m", "app", "demo", "--port", "0"]
STEPS = ["discover", "analyze_outline", "check_canon", "brief", "draft", "polish", "continuity", "critique"]
STILL_UP = "The service stays up"


def test_demo_shows_contradictions_a_kill_and_a_gate(tmp_path: Path) -> None:
    """The demo quotes contradictions, continues a draft after a kill, lets a gate take its default, and ends on Ctrl-C.

    The first line is the address, and at the end each run has its page there.
    """
    with _demo([*DEMO, "--project", str(tmp_path)], stdin=subprocess.DEVNULL) as (demo, lines):
        seen = "".join(_until(lines, STILL_UP))
        first = re.match(r"== Control Room demo: (http://127\.0\.0\.1:\d+)/  in ", seen)
        assert first is not None, seen
        pages = re.findall(rf"^   \w+ +{first[1]}(/runs/\S+)$", seen.split("== the runs, to look at")[1], re.MULTILINE)
        found = [httpx.get(f"{first[1]}/api{page}", timeout=60, trust_env=False).json() for page in pages]
        demo.send_signal(signal.SIGINT)
        seen += "".join(lines)
        code = demo.wait()
    killed, again = re.search(r"kill -9 (\d+)", seen), re.search(r"runs again \(process (\d+)\)", seen)

    assert code == 130, seen
    assert [(run["recipe_id"], run["status"]) for run in found] == [
        ("find_contradictions", "done"),
        ("creative_draft_scene", "done"),
        ("publish_draft", "done"),
    ]
    assert "Kael Arden: eye colour is told as grey and green." in seen
    assert "“- Eyes: grey”  Compendium/Characters/CHAR-kael.md:11" in seen
    assert "9 contradictions" in seen
    assert killed is not None
    assert again is not None
    assert killed[1] != again[1]
    assert not any(process_tree.is_alive(int(pid), process_tree.started(int(pid))) for pid in (killed[1], again[1]))
    assert "5 finished steps, byte for byte as before" in seen
    assert re.search(r"done +b +draft .*\(attempt 2\)$", seen, flags=re.MULTILINE)
    assert [key for key in STEPS if len(re.findall(rf"^ +done +\w+ +{key} ", seen, flags=re.MULTILINE)) == 1] == STEPS
    assert "[approve / deny] approve (the default" in seen
    assert (tmp_path / "Published" / "SCN-the-locked-lamp-room.md").read_text(encoding="utf-8").startswith("The lamp")
    assert seen.rstrip().endswith(f"the demo's folder is {tmp_path}")


def test_the_service_of_a_killed_demo_ends(tmp_path: Path) -> None:
    """A demo that is killed leaves no service running."""
    with _demo([*DEMO, "--project", str(tmp_path)], stdin=subprocess.DEVNULL) as (demo, lines):
        assert "".join(_until(lines, "the service answers there now")).rstrip().endswith("demo.log")
        processes = process_tree.table()
        services = [(pid, found.started) for pid, found in processes.items() if found.parent == demo.pid]
        demo.kill()
        demo.wait()
    deadline = time.monotonic() + 60
    while any(process_tree.is_alive(*service) for service in services) and time.monotonic() < deadline:
        threading.Event().wait(0.05)

    assert len(services) == 1
    assert not process_tree.is_alive(*services[0])


@pytest.mark.slow
def test_demo_asks_at_a_terminal(tmp_path: Path) -> None:
    """A person's denial prevents the publication, and the demo reports the denial as the reason."""
    outer, inner = pty.openpty()
    with (
        os.fdopen(outer, "rb", buffering=0) as terminal,
        _demo([*DEMO, "--project", str(tmp_path), "--exit"], stdin=inner, stdout=inner) as (demo, _),
    ):
        os.close(inner)
        seen = _read_until(terminal, b"Enter: approve] ")
        os.write(outer, b"deny\n")
        seen += _read_until(terminal, b"the demo's folder is")
        code = demo.wait()

    assert code == 0, seen
    assert b"because you denied it" in seen
    assert not (tmp_path / "Published").exists()


@pytest.mark.slow
@pytest.mark.model
def test_demo_runs_on_the_local_model(tmp_path: Path) -> None:
    """The README's command asks the local model, names it, and leaves a draft."""
    words = [sys.executable, str(ROOT / "scripts" / "demo.py"), "--project", str(tmp_path), "--port", "0", "--exit"]
    with _demo(words, stdin=subprocess.DEVNULL) as (demo, lines):
        seen = "".join(lines)
        code = demo.wait()

    assert code == 0, seen
    assert "a model of 135 million parameters" in seen
    assert re.search(r"done +b +draft .*\(attempt 2\)$", seen, flags=re.MULTILINE)
    assert (tmp_path / "Story" / "Scenes" / "SCN-the-locked-lamp-room.md").read_text(encoding="utf-8").strip()


@pytest.mark.slow
def test_demo_reports_why_the_service_does_not_start(tmp_path: Path) -> None:
    """A service that ends at once makes the README's command fail, with the service's own output."""
    (tmp_path / ".control-room").mkdir()
    (tmp_path / ".control-room" / "runs").write_text("not a folder")
    words = [sys.executable, str(ROOT / "scripts" / "demo.py"), "--project", str(tmp_path), "--port", "0", "--exit"]
    shown = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    assert shown.returncode == 5
    assert re.match(r"== the demo's pages will be at http://127\.0\.0\.1:\d+/\n", shown.stdout)
    assert re.search(r"The service ended with code \d+\. Its output:", shown.stderr)
    assert "Traceback" not in shown.stderr


def test_demo_overwrites_nothing(tmp_path: Path) -> None:
    """A folder with other files of the same names is refused before any write."""
    outline = tmp_path / "Story" / "SCN-outline.md"
    outline.parent.mkdir()
    outline.write_text("mine")
    words = [*DEMO, "--project", str(tmp_path)]
    shown = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    assert (shown.returncode, outline.read_text()) == (5, "mine")
    assert "sample_in_the_way" in shown.stderr
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["SCN-outline.md", "Story"]


def test_the_demo_copies_no_runs_or_keys_of_a_used_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo does not copy runs, keys, triggers and agents from an example that a person has used."""
    example, folder = tmp_path / "example", tmp_path / "demo"
    mine = ("agents.json", "replies.json", "keys.json", "triggers/t.json", "runs/r/start.json", "outbox/e.json")
    for name in (*mine, "recipes/own.json"):
        file = example / ".control-room" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    (example / "Story.md").write_text("A key.")
    monkeypatch.setattr(resources, "sample", lambda _: example)
    command.prepare(folder, model=False)
    command.prepare(folder, model=False)

    assert sorted(path.name for path in (folder / ".control-room").iterdir()) == [
        "agents.json", "recipes", "replies.json",
    ]  # fmt: skip
    assert (folder / ".control-room" / "recipes" / "own.json").exists()
    assert (folder / "Story.md").read_text() == "A key."
    assert "draft" in json.loads((folder / ".control-room" / "replies.json").read_text())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("keys.json", "{}"),
        ("agents.json", '{"default_backend": "claude-code"}'),
        ("replies.json", "{}"),
        ("replies.json", "["),
        ("replies.json", "[]"),
    ],
)
def test_demo_refuses_a_folder_with_keys_or_agents(tmp_path: Path, name: str, text: str) -> None:
    """A project with its own keys or agents is refused by the file's name, and the demo writes no files into it."""
    file = tmp_path / ".control-room" / name
    file.parent.mkdir()
    file.write_text(text)

    with pytest.raises(errors.ConfigurationError, match=name) as refused:
        command.prepare(tmp_path, model=False)

    assert refused.value.code == "demo_folder_used"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]


def test_scripted_replies_answer_every_agent() -> None:
    """Each agent step of the drafting recipe has a reply, so that the demo never asks a model."""
    replies = json.loads((ROOT / "app" / "cli" / "demo" / "files" / "replies.json").read_text(encoding="utf-8"))
    recipe = json.loads((ROOT / "recipes" / "control_room" / "creative_draft_scene.json").read_text(encoding="utf-8"))

    assert [step["step_id"] for step in recipe["phase_b"] if step["step_id"] not in replies] == []


@contextmanager
def _demo(
    command: list[str], stdin: int, stdout: int = subprocess.PIPE
) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    with subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=subprocess.STDOUT, text=True, env=_environment()
    ) as demo:
        try:
            yield demo, iter(demo.stdout or ())
        finally:
            # Terminated, not killed, so that the demo stops its service on the way out.
            demo.terminate()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}


def _until(lines: Iterator[str], text: str) -> Iterator[str]:
    for line in lines:
        yield line
        if text in line:
            return


def _read_until(terminal, text: bytes) -> bytes:
    seen = b""
    while text not in seen and (read := terminal.read(4096)):
        seen += read
    return seen
