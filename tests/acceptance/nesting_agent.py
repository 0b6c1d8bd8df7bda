"""A program with the interface of Claude Code that starts a further run of its recipe before it answers.

It is executed as a program of its own: `python nesting_agent.py … PROMPT`. If `NESTING_HOME` contains a file `url`, it
asks the service there; otherwise the further run executes in the process of the command that it calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def main(home: Path, arguments: list[str]) -> int:
    """Answer one prompt."""
    url = home / "url"
    elsewhere = ["--detach", "--server", url.read_text()] if url.exists() else []
    command = [sys.executable, "-m", "app", "run", "nested", *elsewhere]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    known = {name: os.environ.get(name) for name in ("CONTROL_ROOM_RUN_ID", "CONTROL_ROOM_DEPTH")}
    with (home / "calls.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({"code": done.returncode, "said": done.stdout + done.stderr, **known}) + "\n")
    talk = arguments[arguments.index("--session-id") + 1]
    text = 'Started one.\n\n{"outcome": "committed"}'
    print(json.dumps([{"type": "result", "session_id": talk, "is_error": False, "result": text, "usage": {}}]))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(os.environ["NESTING_HOME"]), sys.argv[1:]))
