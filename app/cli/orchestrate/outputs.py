"""Outputs: what a person or a script wants to see of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What is printed and logged of a run."""

    quiet: bool = False
    """Whether stdout gets the run's id alone."""
    verbose: bool = False
    """Whether stderr gets the log."""
    as_json: bool = False
    """Whether stdout gets the run at its rest as JSON, and nothing else."""
    progress: bool = False
    """Whether progress is drawn on stderr."""
    trace: bool = False
    """Whether lines of the log carry trace ids."""
    level: str = "info"
    """Least level that is logged."""

    @property
    def tells_steps(self) -> bool:
        """Tell whether stdout gets a line for each step."""
        return not (self.quiet or self.as_json or self.progress)
