"""The options that were typed: how messages name the settings that they gave."""

from __future__ import annotations

import click
from click.core import ParameterSource

from app import settings


def name_of(setting: str) -> str:
    """Return the option of the present command that gave a setting its value; otherwise the setting's own name."""
    if (context := click.get_current_context(silent=True)) is not None:
        for parameter in context.command.params:
            given = parameter.name or ""
            typed = context.get_parameter_source(given) is ParameterSource.COMMANDLINE
            if typed and setting == settings.PREFIX + given.upper():
                return parameter.opts[0]
    return setting
