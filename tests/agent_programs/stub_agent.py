"""A small agent program, the test subject of a backend where the real program is not available.

`stub_agent.py [--force] [--model M] [--session-id ID | --resume ID] [--system TEXT] [PROMPT]`, with the prompt on
standard input if it is not an argument. It asks a Chat Completions server at $STUB_MODEL_URL, runs shell commands with
`--force`, keeps its conversations in $HOME/.stub, and prints one object a line, the last of them the result.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
MODEL_SECONDS = 600


class Refused(Exception):
    """The model answered with an error."""


def main() -> int:
    """Answer one prompt."""
    asked = _arguments()
    prompt = asked.prompt if asked.prompt is not None else sys.stdin.read()
    name = asked.resume or asked.session_id or str(uuid.uuid4())
    kept = Path.home() / ".stub" / f"{name}.json"
    if asked.resume and not kept.exists():
        print(f"Error: chat {name} not found", file=sys.stderr)
        return 1
    if asked.session_id and kept.exists():
        print(f"Error: chat {name} already exists", file=sys.stderr)
        return 1
    messages: list[dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else []
    if asked.system:
        messages.append({"role": "system", "content": asked.system})
    messages.append({"role": "user", "content": prompt})
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(messages))
    _print(type="system", subtype="init", session_id=name, model=asked.model, cwd=str(Path.cwd()))
    try:
        text, usage = _converse(messages, asked.model, acts=asked.force)
    except Refused as error:
        told = f"API Error: {error}"
        _print(type="result", subtype="error", is_error=True, error={"message": told}, session_id=name)
        return 1
    kept.write_text(json.dumps(messages))
    _print(type="result", subtype="success", is_error=False, result=text, session_id=name, usage=usage)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("--print", "--trust", "--force"):
        parser.add_argument(flag, action="store_true")
    for option in ("--output-format", "--model", "--session-id", "--resume", "--system"):
        parser.add_argument(option)
    parser.add_argument("prompt", nargs="?")
    return parser.parse_args()


def _converse(messages: list[dict[str, Any]], model: str | None, *, acts: bool) -> tuple[str, dict[str, int]]:
    """Ask the model and execute its tool calls, until it makes no further call."""
    usage = {"input_tokens": 0, "output_tokens": 0}
    while True:
        reply = _asked(messages, model or "fake-model", [TOOL] if acts else [])
        usage["input_tokens"] += reply["usage"]["prompt_tokens"]
        usage["output_tokens"] += reply["usage"]["completion_tokens"]
        message = reply["choices"][0]["message"]
        messages.append(message)
        calls = message.get("tool_calls") or []
        for call in calls:
            result = _acted(call, acts=acts)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if not calls:
            return message["content"] or "", usage


def _acted(call: dict[str, Any], *, acts: bool) -> str:
    if not acts:
        return "Error: no tool may be used"
    command = json.loads(call["function"]["arguments"])["command"]
    # As in the real programs, a new session, so that a process that ends this program must find the command itself.
    done = subprocess.run(
        ["bash", "-c", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    return done.stdout + done.stderr


def _asked(messages: list[dict[str, Any]], model: str, tools: list[Any]) -> Any:
    body = {"model": model, "messages": messages, **({"tools": tools} if tools else {})}
    content = json.dumps(body).encode()
    address = os.environ["STUB_MODEL_URL"].removeprefix("http://")
    host, _, port = address.partition(":")
    head = f"POST /v1/chat/completions HTTP/1.0\r\nHost: {address}\r\nContent-Length: {len(content)}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    # Without a library, because loading its client takes half of this program's CPU time.
    with socket.create_connection((host, int(port)), MODEL_SECONDS) as connection, connection.makefile("rb") as answer:
        connection.sendall(head.encode() + content)
        status = answer.readline().split()[1].decode()
        told = answer.read().partition(b"\r\n\r\n")[2]
    if status != "200":
        raise Refused(f"{status} {told.decode()}")
    return json.loads(told)


def _print(**record: Any) -> None:
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    sys.exit(main())
