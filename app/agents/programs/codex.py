"""Codex: names its conversations itself, in the first line that it writes.

A first prompt that was cut off is repeated in its conversation if that line was seen, and in a new one otherwise. Codex
refuses an unknown id, but silently begins a new conversation for a text that is not an id, so such texts are not sent.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from app.agents.programs import results
from app.agents.programs.program import Event, Failure, Invocation, ParsedOutput, Program, Tally, Turn, within

_NO_ID = "00000000-0000-0000-0000-000000000000"
_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ACTIONS = ("command_execution", "file_change", "mcp_tool_call", "web_search")
_TOOLS = (
    "shell_tool", "unified_exec", "code_mode_host", "apps", "plugins", "multi_agent", "goals", "view_image",
    "image_generation",
)  # fmt: skip


def _invoke(turn: Turn) -> Invocation:
    prompt = turn.prompt
    arguments = ["exec", *(["resume"] if turn.resumes else []), "--json", "--skip-git-repo-check"]
    arguments += [*turn.config.arguments, *_permissions(turn)]
    if prompt.model is not None:
        arguments += ["--model", prompt.model]
    if turn.resumes and turn.session_id is not None:
        arguments.append(turn.session_id if _ID.fullmatch(turn.session_id) else _NO_ID)
    # Its setting for a standing instruction is an argument, and every user of the machine can read arguments.
    return Invocation(arguments=(*arguments, "-"), stdin=turn.message())


def _permissions(turn: Turn) -> list[str]:
    if turn.prompt.tools:
        return ["--dangerously-bypass-approvals-and-sandbox"]
    # Tools that cannot be switched off are confined by Codex's own operating-system sandbox.
    settings = ['sandbox_mode="read-only"', 'approval_policy="never"', 'web_search="disabled"']
    settings += [f"features.{name}=false" for name in _TOOLS]
    settings += [f"mcp_servers.{json.dumps(name)}.enabled=false" for name in _servers(turn)]
    return [part for setting in settings for part in ("--config", setting)]


def _servers(turn: Turn) -> Iterator[str]:
    own = Path(turn.environ.get("CODEX_HOME") or turn.home / ".codex")
    for folder in (own, Path(turn.prompt.working_dir) / ".codex"):
        try:
            # Codex itself refuses a file that it cannot read, with its own message.
            document = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        servers = document.get("mcp_servers")
        yield from servers if isinstance(servers, dict) else ()


def _parse(event: Event, output: ParsedOutput) -> None:
    match event.get("type"):
        case "thread.started":
            output.session_id = str(event.get("thread_id") or "") or None
        case "item.completed" if within(event, "item", "type") == "agent_message":
            output.text = str(within(event, "item", "text") or "")
        case "item.started" if within(event, "item", "type") in _ACTIONS:
            # Text before a tool call is not an answer, even if no text follows.
            output.text = ""
        case "turn.completed":
            usage = event.get("usage")
            output.complete = True
            # An error from which Codex recovered is not a failure.
            output.failure = None
            output.sums = Tally()
            # Codex reports the sums of the whole conversation.
            output.sums.add(within(usage, "input_tokens"), within(usage, "output_tokens"))
        case "turn.failed":
            reported = results.inner_words(str(within(event, "error", "message") or ""))
            is_cut_off = reported.endswith("reason: max_output_tokens")
            output.failure = Failure(message=reported, is_cut_off=is_cut_off)


PROGRAM = Program(
    label="Codex",
    commands=("codex",),
    path_variable="CODEX_CLI_PATH",
    install="npm install -g @openai/codex",
    invoke=_invoke,
    parse=_parse,
    names_sessions="it",
    unknown_session=("no rollout found for thread id",),
    key_variable="CODEX_API_KEY",
    keys=("CODEX_API_KEY", "OPENAI_API_KEY"),
)
"""How the backend calls Codex."""
