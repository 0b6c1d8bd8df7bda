"""A program with the interface of Claude Code that keeps its conversations as Claude Code does.

It refuses to begin a conversation whose id is in use, and to resume an unknown one. It records its calls, and hangs
where its plan requests that. It is executed as a program of its own:
`python remembering_agent.py --session-id ID < PROMPT`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

ANSWERS = {"Review it.": "no-issues", "Commit it.": "committed", "Go on.": "no-issues"}


def main(home: Path, arguments: list[str]) -> int:
    """Answer one prompt."""
    way = "--resume" if "--resume" in arguments else "--session-id"
    talk, prompt = arguments[arguments.index(way) + 1], sys.stdin.readline().rstrip("\n")
    _append(home / "calls.jsonl", {"way": way, "talk": talk, "prompt": prompt, "pid": os.getpid()})
    memory, plan = home / f"{talk}.talk", json.loads((home / "plan.json").read_text())
    if plan == {"hang": prompt, "when": "early"}:
        _wait_for_ever(home)
    if way == "--resume" and not memory.exists():
        print(f"No conversation found with session ID: {talk}", file=sys.stderr)
        return 1
    if way == "--session-id" and memory.exists():
        print(f"Error: Session ID {talk} is already in use.", file=sys.stderr)
        return 1
    _append(memory, prompt)
    if plan == {"hang": prompt, "when": "late"}:
        _wait_for_ever(home)
    text = f'Done.\n\n{{"outcome": "{ANSWERS[prompt]}"}}'
    result = {"type": "result", "session_id": talk, "is_error": False, "result": text, "total_cost_usd": 0.01}
    print(json.dumps([result | {"usage": {"input_tokens": 5, "output_tokens": 3}}]))
    return 0


def _append(file: Path, value: object) -> None:
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(value) + "\n")


def _wait_for_ever(home: Path) -> None:
    with (home / "waits").open("w", encoding="utf-8") as pipe:
        pipe.write("here\n")
    threading.Event().wait()


if __name__ == "__main__":
    sys.exit(main(Path(os.environ["REMEMBERING_HOME"]), sys.argv[1:]))
