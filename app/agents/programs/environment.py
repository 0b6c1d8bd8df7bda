"""The environment of a program: that of this process, without the variables that a surrounding agent has set."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePath

from app import errors, printable
from app.agents.configuration import BackendConfig, BackendContext
from app.agents.programs.program import Invocation, Program
from app.domain import secret_spellings
from app.engine import agent_ports

_OF_OTHERS = (
    "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION*", "CLAUDE_CODE_CHILD*", "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_MESSAGING_*", "CLAUDE_PID", "CLAUDE_EFFORT", "AI_AGENT",
)  # fmt: skip
_NAME = re.compile(r"\w+")
_VENDOR = re.compile(r"([A-Za-z0-9-]+)/")
_BEADS = Path(".beads-local") / "local.db"


def overlay(
    program: Program,
    config: BackendConfig,
    environ: Mapping[str, str],
    prompt: agent_ports.AgentPrompt,
    called: Invocation,
) -> dict[str, str | None]:
    """Return the changes to this process's environment; None: the variable is removed.

    Raises:
        errors.AgentFailed: `missing_secrets`, the variable that holds the key is not set.
    """
    changed = cleaned(environ, prompt.working_dir)
    # A value that the user has set has precedence.
    changed |= {name: value for name, value in program.variables.items() if name not in environ}
    if config.base_url is not None and program.endpoint_variable is not None:
        changed[program.endpoint_variable] = config.base_url
    if config.api_key_env is not None and program.key_variable is not None:
        changed[program.key_variable] = _key(config, environ)
    if prompt.max_tokens is not None and program.limit_variable is not None:
        changed[program.limit_variable] = str(prompt.max_tokens)
    # The run's own variables come last: no configuration may give a program those of another run.
    return {**changed, **called.env, **prompt.env}


def secrets(
    programs: Iterable[Program], config: BackendConfig, context: BackendContext, model: str | None
) -> frozenset[str]:
    """Return the names of the secret variables that a program gets: its own keys, and those that the user adds."""
    patterns = [*config.secrets, *context.secrets]
    for program in programs:
        patterns += [*program.keys, *program.shares]
        if program.names_vendors and (vendor := _VENDOR.match(model or "")):
            patterns += [f"{vendor[1]}_{name}".replace("-", "_") for name in ("API_KEY", "GENERATIVE_AI_API_KEY")]
    return secret_spellings.named(context.environ, patterns)


def naming_withheld(reply: agent_ports.AgentReply, withheld: Collection[str], backend: str) -> agent_ports.AgentReply:
    """Return a reply; if its error names withheld variables, the message explains how the program gets them.

    Args:
        withheld: Names of secret variables that are set, but were not passed on.
        backend: Name of the backend in `agents.json`.
    """
    if (error := reply.error) is None:
        return reply
    # Compare whole names: not every text with the letters of TOKEN means the variable TOKEN.
    words = set(_NAME.findall(f"{error.message} {error.detail.get('stderr', '')}"))
    if not (named := sorted(words.intersection(withheld))):
        return reply
    hint = f"Control Room does not pass {printable.listed(named)} to this program"
    message = (
        f"{printable.sentence(error.message)} {hint} unless `secrets` of the backend {backend} in agents.json lists it."
    )
    explained = dataclasses.replace(error, message=message, detail={**error.detail, "withheld": named})
    return dataclasses.replace(reply, error=explained)


def cleaned(environ: Mapping[str, str], working_dir: PurePath) -> dict[str, str | None]:
    """Return the changes for every agent: variables of other agents are removed, and a worktree gets its own issues."""
    changed: dict[str, str | None] = dict.fromkeys(_left_by_others(environ))
    if (beads := beads_database(working_dir)) is not None:
        changed["BEADS_DB"] = str(beads)
    return changed


def beads_database(working_dir: PurePath) -> Path | None:
    """Return the issue database that a linked git worktree has for itself; None if it has none."""
    folder = Path(working_dir)
    for place in (folder, *folder.parents):
        if os.path.exists(place / ".git"):
            found = [base / _BEADS for base in (folder, place) if os.path.isfile(base / _BEADS)]
            return found[0] if found and _is_linked(place / ".git") else None
    return None


def _is_linked(git: Path) -> bool:
    if not os.path.isfile(git):
        return False
    try:
        return "/worktrees/" in git.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _left_by_others(environ: Mapping[str, str]) -> list[str]:
    return [name for name in environ if any(fnmatch.fnmatchcase(name, pattern) for pattern in _OF_OTHERS)]


def _key(config: BackendConfig, environ: Mapping[str, str]) -> str:
    name = config.api_key_env or ""
    if not environ.get(name):
        message = f"The service's environment lacks {name}, the key of the backend {config.name}."
        raise errors.AgentFailed(message, code="missing_secrets", detail={"missing_secrets": [name]})
    return environ[name]
