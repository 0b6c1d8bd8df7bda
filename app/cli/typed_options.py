"""Typed options: messages name the option that set a value, instead of the setting."""

from __future__ import annotations

import click
from click.core import ParameterSource

from app import settings


def name_of(setting: str) -> str:
    """Return the present command's option that gave a setting its value; otherwise the setting's own name."""
    if (context := click.get_current_context(silent=True)) is not None:
        for parameter in context.command.params:
            given = parameter.name or ""
            typed = context.get_parameter_source(given) is ParameterSource.COMMANDLINE
            if typed and setting == settings.PREFIX + given.upper():
                return parameter.opts[0]
    return setting
