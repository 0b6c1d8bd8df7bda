"""The ways to direct each agent program to the fake model: a private home with its configuration, and its environment.

The needs of each program were measured with exactly the pinned versions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.agent_programs.installed import Installed

KEY = "dummy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointed:
    """A program that connects only to the fake model."""

    name: str
    """Its name in `programs.json`."""
    command: tuple[str, ...]
    """The command that starts it."""
    home: Path
    """Its private home folder."""
    environ: Mapping[str, str]
    """Its whole environment."""
    model: str
    """A model name that it accepts."""
    shell: str
    """Its tool for shell commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How one program is directed to a server."""

    environ: Callable[[Path, str], Mapping[str, str]]
    """Variables, from its home and the server's address."""
    model: str
    """A model name that it accepts."""
    shell: str
    """Its tool for shell commands."""
    files: Callable[[str], Mapping[str, str]] = lambda _: {}
    """Files below its home, from the server's address."""
    unpacked: tuple[str, ...] = ()
    """Folders below its home that it fills at its first start; the tests keep them."""


def point(program: Installed, home: Path, address: str) -> Pointed:
    """Write a program's configuration into a home of its own, so that it asks the server at the address."""
    way = WAYS[program.name]
    for name in ("", ".config", ".local/share", ".local/state", ".cache", "tmp"):
        (home / name).mkdir(parents=True, exist_ok=True)
    for name in way.unpacked:
        program.unpacked.mkdir(exist_ok=True)
        (home / name).symlink_to(program.unpacked, target_is_directory=True)
    for name, content in way.files(address).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content, encoding="utf-8")
    node = (f"{program.path.split(os.pathsep)[0]}/node",) if program.file.suffix == ".js" else ()
    return Pointed(
        name=program.name,
        command=(*node, str(program.file)),
        home=home,
        environ={**_usual(program, home), **way.environ(home, address)},
        model=way.model,
        shell=way.shell,
    )


def _usual(program: Installed, home: Path) -> dict[str, str]:
    return {
        "PATH": program.path,
        "HOME": str(home),
        "USER": "nobody",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": str(home / "tmp"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "NO_PROXY": "127.0.0.1,localhost",
    }


def _claude(home: Path, address: str) -> Mapping[str, str]:
    # IS_SANDBOX: as root it refuses to act elsewhere without asking. Here it does only what a test scripts.
    return {
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "IS_SANDBOX": "1",
    }


def _codex(home: Path, _: str) -> Mapping[str, str]:
    return {"CODEX_HOME": str(home / ".codex"), "CODEX_API_KEY": KEY}


def _codex_files(address: str) -> Mapping[str, str]:
    return {
        ".codex/config.toml": f"""\
model = "fake-model"
model_provider = "fake"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.fake]
name = "fake"
base_url = "{address}/v1"
env_key = "CODEX_API_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
"""
    }


def _gemini(_: Path, address: str) -> Mapping[str, str]:
    return {
        "GEMINI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": address,
        "GEMINI_TELEMETRY_ENABLED": "false",
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }


def _gemini_files(_: str) -> Mapping[str, str]:
    chosen = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True, "disableUpdateNag": True, "maxAttempts": 1},
        "telemetry": {"enabled": False},
    }
    return {".gemini/settings.json": json.dumps(chosen)}


def _opencode(home: Path, _: str) -> Mapping[str, str]:
    return {
        "OPENCODE_CONFIG": str(home / "opencode.json"),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    }


def _opencode_files(address: str) -> Mapping[str, str]:
    size = {"limit": {"context": 200_000, "output": 8_000}, "cost": {"input": 1, "output": 2}}
    chosen = {
        "autoupdate": False,
        "share": "disabled",
        "model": "fake/fake-model",
        "small_model": "fake/fake-model",
        "provider": {
            "fake": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Fake",
                "options": {"baseURL": f"{address}/v1", "apiKey": KEY},
                "models": {"fake-model": {"name": "Fake", **size}, "other-model": {"name": "Other", **size}},
            }
        },
    }
    return {"opencode.json": json.dumps(chosen)}


def _copilot(home: Path, address: str) -> Mapping[str, str]:
    return {
        "COPILOT_HOME": str(home / ".copilot"),
        "COPILOT_PROVIDER_BASE_URL": f"{address}/v1",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_MODEL": "fake-model",
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
    }


def _qwen(home: Path, address: str) -> Mapping[str, str]:
    return {
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_MODEL": "fake-model",
        "QWEN_HOME": str(home / ".qwen"),
        "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
    }


def _qwen_files(_: str) -> Mapping[str, str]:
    # The memory feature asks the model, with tools, after the answer.
    chosen = {
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "openai"}},
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        # Over ACP it asks the model for the user's possible next message, and does not report the usage of that.
        "ui": {"enableFollowupSuggestions": False},
    }
    return {".qwen/settings.json": json.dumps(chosen)}


WAYS: Mapping[str, Way] = {
    "claude": Way(environ=_claude, model="sonnet", shell="Bash"),
    "codex": Way(environ=_codex, files=_codex_files, model="fake-model", shell="exec_command"),
    "gemini": Way(environ=_gemini, files=_gemini_files, model="gemini-2.5-flash", shell="run_shell_command"),
    "opencode": Way(environ=_opencode, files=_opencode_files, model="fake/fake-model", shell="bash"),
    "copilot": Way(environ=_copilot, model="fake-model", shell="bash", unpacked=(".cache/copilot",)),
    "qwen": Way(environ=_qwen, files=_qwen_files, model="fake-model", shell="run_shell_command"),
}
"""How each program is directed to a server."""
