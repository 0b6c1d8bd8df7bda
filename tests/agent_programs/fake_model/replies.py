"""The answers that a test can give a fake model."""

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
    """Name of the tool that the model calls even if the program offers none for shell commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A call of the program's tool for writing files."""

    path: str
    """File to write."""
    content: str
    """Its content."""
    insist: str | None = None
    """Name of the tool that the model calls even if the program offers none for writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A text, a call of a tool, or both."""

    text: str = ""
    """The text of the reply."""
    tool: Shell | Write | None = None
    """The tool that it calls; if the program offers no such tool, the text of the reply reports that."""
    cut: bool = False
    """Whether the reply ends because it reached the length limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An HTTP error in place of a reply."""

    status: int
    """Status of the answer."""
    message: str = "the fake model was told to fail"
    """The message of the error."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers of the answer, `Retry-After` for example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """No answer until the client disconnects."""

    begin: str | None = None
    """Text that is sent before the reply hangs; None: not even a head of the answer."""


Answer = Reply | Fault | Hang
"""An answer to a request."""
