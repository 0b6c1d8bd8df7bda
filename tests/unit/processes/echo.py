"""A helper process for tests: it repeats each line, and does what the line asks for."""

from __future__ import annotations

import json
import os
import signal
import sys

from app.processes import process_tree


def main() -> None:
    """Answer each line until standard input ends."""
    process_tree.die_with_parent(int(sys.argv[1]))
    for line in sys.stdin:
        heard = json.loads(line)
        match heard.get("do"):
            case "complain and leave":
                print("something is wrong", file=sys.stderr, flush=True)
                os._exit(3)
            case "hang":
                signal.pause()
            case "tell":
                answer = {"arguments": sys.argv[2:], "environment": dict(os.environ), "cwd": os.getcwd()}
                print(json.dumps(answer), flush=True)
            case _:
                print(json.dumps({"heard": heard}), flush=True)


if __name__ == "__main__":
    main()
