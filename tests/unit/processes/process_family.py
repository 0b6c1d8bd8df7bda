"""A family: a program whose processes try to escape, so that a test can see whether they are found.

`process_family.py FOLDER KIND…` starts one process of each kind and stays, unless a kind makes it leave. Each process
writes its id into FOLDER/KIND and from then on a growing FOLDER/KIND.trace, until it is killed.

- `child`: a child
- `session`: a child with a session of its own
- `daemon`: twice forked, a session of its own, an empty environment, all files closed
- `hidden`: a daemon that removes its mark
- `polite`: a child that writes a farewell on SIGTERM
- `tool`: a child with a session of its own, as agents' programs start their tools
- `stubborn`: not started; the program itself and the processes that it starts later ignore SIGTERM
- `leave`: not started; the program ends once the others are alive
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys

_SHORT = 0.005


def main() -> None:
    """Run as the parent, or as one of the other processes."""
    folder, *kinds = sys.argv[1:]
    if kinds[0].startswith("--"):
        _live(folder, kinds[0][2:])
        return
    for kind in kinds:
        if kind == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif kind != "leave":
            _start(folder, kind)
    for kind in kinds:
        while kind not in ("stubborn", "leave") and not os.path.exists(f"{folder}/{kind}"):
            select.select([], [], [], _SHORT)
    if "leave" not in kinds:
        _live(folder, "parent")


def _start(folder: str, kind: str) -> None:
    if os.fork() > 0:
        return
    if kind in ("daemon", "hidden"):
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
        os.closerange(0, 64)
        if kind == "hidden":
            resource.setrlimit(10, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    elif kind in ("session", "tool"):
        os.setsid()
    environment = {} if kind in ("daemon", "hidden") else dict(os.environ)
    os.execve(sys.executable, [sys.executable, "-I", "-S", os.path.abspath(__file__), folder, f"--{kind}"], environment)


def _live(folder: str, kind: str) -> None:
    if kind in ("polite", "tool"):
        signal.signal(signal.SIGTERM, lambda number, frame: _say_goodbye(folder))
    with open(f"{folder}/{kind}.new", "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    os.rename(f"{folder}/{kind}.new", f"{folder}/{kind}")
    with open(f"{folder}/{kind}.trace", "ab", buffering=0) as trace:
        while True:
            trace.write(b".")
            select.select([], [], [], _SHORT)


def _say_goodbye(folder: str) -> None:
    with open(f"{folder}/goodbye", "w", encoding="ascii"):
        os._exit(0)


if __name__ == "__main__":
    main()
