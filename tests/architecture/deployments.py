"""Checks of deployment files against the command line, the settings, and the image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from app import environment_values, settings
from app.cli import root
from tests.architecture import sources

PROVIDERS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"}
"""Variables that the library of object storage reads."""

PROBES = {"/healthz", "/readyz"}
"""Addresses that a service answers without a token."""


def refused_command(words: Sequence[str]) -> str | None:
    """Return why the program refuses a command line; None if it accepts the line."""
    import click

    if words[0] != "control-room" or words[1] not in root.control_room.commands:
        return f"there is no command {words[:2]}"
    try:
        root.control_room.commands[words[1]].make_context(words[1], list(words[2:]))
    except click.ClickException as error:
        return error.format_message()
    return None


def unknown_variables(names: Iterable[str]) -> set[str]:
    """Return the variables that the service does not read."""
    return set(names) - {item.env for item in settings.documented()} - PROVIDERS


def refused_settings(environ: dict[str, str]) -> list[str]:
    """Return the fatal errors of settings, except missing folders, which only a container has."""
    chosen = settings.load(environ)
    remarks = [remark for remark in settings.check(chosen, environ) if remark.fatal]
    flaws = [
        f"{remark.setting}: {remark.message}" for remark in remarks if not remark.message.endswith("does not exist")
    ]
    if chosen.project.blobs_url and (flaw := environment_values.flaw_of_bucket(chosen.project.blobs_url)):
        flaws.append(flaw)
    return flaws


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a language in a page."""
    text = (sources.ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
