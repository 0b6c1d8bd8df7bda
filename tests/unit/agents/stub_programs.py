"""Stub programs: real executables that record their calls and answer as the test says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_SCRIPT = """\
#!{python} -IS
import json, os, pathlib, signal, sys
here = pathlib.Path({folder!r})
calls = len(list(here.glob("call-*.json")))
note = {{"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "stdin": sys.stdin.read()}}
for argument in sys.argv[1:]:
    if os.path.isfile(argument):
        note.setdefault("files", {{}})[argument] = open(argument).read()
(here / "call.tmp").write_text(json.dumps(note))
(here / "call.tmp").rename(here / f"call-{{calls}}.json")
answers = json.loads((here / "answers.json").read_text())
answer = answers[min(calls, len(answers) - 1)]
for line in answer["stdout"]:
    print(line if isinstance(line, str) else json.dumps(line), flush=True)
if "child" in answer:
    os.spawnlp(os.P_NOWAIT, "sleep", "sleep", str(answer["child"]))
if answer.get("hangs"):
    signal.pause()
print(answer.get("stderr", ""), end="", file=sys.stderr)
sys.exit(answer.get("exit_code", 0))
"""


class Stub:
    """An executable in a folder of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / name
        self.file.write_text(_SCRIPT.format(python=sys.executable, folder=str(folder)))
        self.file.chmod(0o755)
        self.answer({"stdout": []})

    def answer(self, *answers: dict[str, Any]) -> None:
        """Set the answers, one per call; the last one is repeated."""
        (self.folder / "answers.json").write_text(json.dumps(answers))

    def calls(self) -> list[dict[str, Any]]:
        """Return the recorded calls."""
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("call-*.json"))]


def claude_answer(text: str, session_id: str = "s", **given: Any) -> dict[str, Any]:
    """Return an answer of Claude Code."""
    usage = {"input_tokens": 5, "output_tokens": 3}
    result = {"type": "result", "subtype": "success", "is_error": False, "result": text, "session_id": session_id}
    return {"stdout": [{**result, "usage": usage, "total_cost_usd": 0.5}], **given}


def codex_answer(text: str, thread_id: str, **given: Any) -> dict[str, Any]:
    """Return an answer of Codex."""
    lines = [
        {"type": "thread.started", "thread_id": thread_id},
        {"type": "item.completed", "item": {"type": "agent_message", "text": text}},
        {"type": "turn.completed", "usage": {"input_tokens": 5, "output_tokens": 3}},
    ]
    return {"stdout": lines, **given}
