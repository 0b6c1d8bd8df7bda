"""Templates: any other program, called by a template in `agents.json`.

We name its conversations (`{session_id}`), or the program does, if `reply` has the path of the name. A first prompt
that was cut off is continued if the program's name for its conversation is known, and sent anew if not.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import PurePath

from app import errors
from app.agents.configuration import BackendConfig, Part
from app.agents.programs.program import Event, Failure, Invocation, ParsedOutput, Program, Turn, within

ARGUMENT_BYTES = 100_000  # Longest prompt that is passed as an argument.

_PROMPT_FILE = "prompt.txt"
_PLACE = re.compile(r"\{(prompt|prompt_file|model|session_id|system|working_dir|max_tokens)\}")
_CUT_OFF = ("length", "max_tokens", "MAX_TOKENS")
_TOOLS = "{tools}"
_SHELLS = frozenset({"ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"})
_SCRIPT = re.compile(r"-[a-z]*c[a-z]*|--command")


def program(config: BackendConfig) -> Program:
    """Return the program that a template describes."""
    named = [text for part in (*config.command, *config.resume) for text in ([part] if isinstance(part, str) else part)]
    reply = config.reply

    def parse(event: Event, output: ParsedOutput) -> None:
        _parse(event, output, reply or {})

    return Program(
        label=config.name,
        commands=(),
        invoke=_invoke,
        parse=parse,
        names_sessions="it" if reply and "session_id" in reply else "we",
        tools_off=config.tools_off is not None,
        resumes=bool(config.resume),
        wants_folder=any("{prompt_file}" in text for text in named),
        prints_reply_only=reply is None,
    )


def fills_script(template: tuple[Part, ...]) -> bool:
    """Return whether a placeholder is inside a shell script, where the shell would execute its value."""
    texts = [text for part in template for text in _texts(part)]
    begins = next((at for at, text in enumerate(texts) if PurePath(text).name in _SHELLS), len(texts))
    return any(_SCRIPT.fullmatch(option) and _PLACE.search(text) for option, text in itertools.pairwise(texts[begins:]))


def _invoke(turn: Turn) -> Invocation:
    config = turn.config
    template = config.resume if turn.resumes else config.command
    if not template:
        message = f"The backend {config.name} cannot continue a conversation: its entry in agents.json has no `resume`."
        raise errors.AgentFailed(message, code="unknown_agent_session", detail={"backend": config.name})
    named = {name for part in template for text in _texts(part) for name in _PLACE.findall(text)}
    message = turn.message(with_system="system" not in named)
    # The kernel limits an argument and refuses a NUL; the only message would be that the program cannot be started.
    if "prompt" in named and (len(message.encode()) > ARGUMENT_BYTES or "\0" in message):
        raise errors.AgentFailed(
            f"The prompt is too long to be an argument; let the command of the backend {config.name} take"
            " {prompt_file}, or read standard input.",
            code="prompt_too_large",
            detail={"size_bytes": len(message.encode()), "limit_bytes": ARGUMENT_BYTES},
        )
    by_input = not named & {"prompt", "prompt_file"}
    return Invocation(
        arguments=tuple(_filled(template, _values(turn, message), _tools(turn))),
        stdin=message if by_input else None,
        files={_PROMPT_FILE: message} if "prompt_file" in named else {},
    )


def _values(turn: Turn, message: str) -> Mapping[str, str | None]:
    return {
        "prompt": message,
        "prompt_file": None if turn.folder is None else str(turn.folder / _PROMPT_FILE),
        "model": turn.prompt.model,
        "session_id": turn.session_id,
        "system": turn.prompt.system or None,
        "working_dir": str(turn.prompt.working_dir),
        "max_tokens": None if turn.prompt.max_tokens is None else str(turn.prompt.max_tokens),
    }


def _tools(turn: Turn) -> tuple[str, ...]:
    return turn.config.tools_on if turn.prompt.tools else turn.config.tools_off or ()


def _filled(template: tuple[Part, ...], values: Mapping[str, str | None], tools: tuple[str, ...]) -> list[str]:
    parts = template[1:] if _TOOLS in template else (*template[1:], _TOOLS)
    arguments: list[str] = []
    for part in parts:
        if part == _TOOLS:
            arguments += tools
        elif all(values[name] is not None for text in _texts(part) for name in _PLACE.findall(text)):
            # If its value is missing, an option is left out with it.
            arguments += [_argument(text, values, is_operand="--" in arguments) for text in _texts(part)]
    return arguments


def _argument(text: str, values: Mapping[str, str | None], *, is_operand: bool) -> str:
    filled = _PLACE.sub(lambda found: values[found[1]] or "", text)
    is_option = filled.startswith("-") and not text.startswith("-") and not is_operand
    return f"\n{filled}" if is_option else filled


def _texts(part: Part) -> tuple[str, ...]:
    return (part,) if isinstance(part, str) else part


def _parse(event: Event, output: ParsedOutput, paths: Mapping[str, str]) -> None:
    reported = {name: within(event, *path.split(".")) for name, path in paths.items()}
    if isinstance(reported.get("session_id"), str | int):
        output.session_id = str(reported["session_id"])
    if isinstance(reported.get("text"), str):
        output.text = reported["text"]
        output.complete = True
    if reported.get("finish") is not None:
        # As for the text, the last one counts: an earlier answer of the turn is not the reply.
        output.cut_off = reported["finish"] in _CUT_OFF
    if reported.get("error"):
        output.failure = Failure(message=str(reported["error"]))
    output.turn.add(reported.get("input_tokens"), reported.get("output_tokens"), reported.get("cost_usd"))
