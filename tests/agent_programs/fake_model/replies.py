"""What a fake model can be told to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

INPUT_TOKENS = 101
OUTPUT_TOKENS = 23
CACHED_TOKENS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """A call of the program's tool for shell commands."""

    command: str
    """The command line."""
    insist: str | None = None
    """Name of the tool that is called even if the program offers none for shell commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A call of the program's tool for writing files."""

    path: str
    """File to be written."""
    content: str
    """What it is to hold."""
    insist: str | None = None
    """Name of the tool that is called even if the program offers none for writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A text, a call of a tool, or both."""

    text: str = ""
    """What the model says."""
    tool: Shell | Write | None = None
    """What it wants done; where the program offers no such tool, it says so in its text."""
    cut: bool = False
    """Whether it ends because it has reached its longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An HTTP error in place of a reply."""

    status: int
    """Status of the answer."""
    message: str = "the fake model was told to fail"
    """What the error says."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the answer beside the usual ones, `Retry-After` for example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """No answer, until the client goes away."""

    begin: str | None = None
    """Text that is said before nothing more is; None: not even a head of the answer."""


Answer = Reply | Fault | Hang
"""Anything that a request can be answered with."""
