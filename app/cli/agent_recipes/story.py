"""The story of a run, from the notes of its driver: as lines of `--verbose` (agent-recipes, 9) and of `--events`
(16.3).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeAlias

from app.cli import terminal

Note: TypeAlias = Mapping[str, Any]  # Fields of a `recipe.note`.

Said = Callable[[int], Awaitable[str]]
"""Returns the reply of an agent in a step, by the step's position in the journal."""

_TAG_CHARACTERS = 16


class Story:
    """Print the progress of a run: replies on stdout, notes on stderr.

    Args:
        said: Returns the reply of the step at a position; None if replies are not printed.
    """

    def __init__(self, said: Said | None, *, verbose: bool, events: bool) -> None:
        self._said = said
        self._verbose = verbose
        self._events = events
        self._backend = ""

    async def print_event(self, event: Mapping[str, Any]) -> None:
        """Print one event."""
        facts = event.get("data") or {}
        if event["type"] == "recipe.note":
            self._note(facts)
        elif event["type"] == "step.finished" and self._said is not None:
            reply = await self._said(facts["position"])
            if reply.strip():
                terminal.say_reply(reply)

    def _note(self, note: Note) -> None:
        self._backend = note.get("backend") or self._backend
        if self._verbose:
            for line in orchestration({**note, "backend": self._backend}):
                terminal.warn(f"[orchestration] {line}")
        if self._events:
            for line in structured(note):
                terminal.warn(line)


def orchestration(note: Note) -> Iterator[str]:
    """Yield the lines that `--verbose` prints for a note, without their tag."""
    match note["event"]:
        case "recipe:started":
            yield f"Starting recipe: {note['recipeId']}"
        case "step:started":
            yield f"Step: {note['step']} ({_counts(note)})"
            yield f"Sending prompt ({note['promptLength']} chars) to {_speaker(note)}"
        case "step:retry":
            yield f"Outcome not extracted: {note['error']}"
            yield f"Sending reminder ({note['promptLength']} chars) to {_speaker(note)}"
        case "step:outcome":
            yield f"Outcome extracted: {note['outcome']}"
            if note.get("otherDescription"):
                yield f"Described as: {' '.join(note['otherDescription'].split())}"
        case "step:transition":
            yield f"Transition: {note['step']} → {_target(note)}"
        case "recipe:exited":
            yield f"Exit: {note['reason']}"


def structured(note: Note) -> Iterator[str]:
    """Yield the lines that `--events` prints for a note."""
    match note["event"]:
        case "recipe:started":
            yield _tagged(note, f"{note['recipeId']} (session: {note['sessionId']})")
        case "step:started":
            model = f" [model: {note['model']}]" if note["model"] else ""
            yield _tagged(note, f"{note['step']} ({_counts(note)}){model}")
        case "step:retry":
            yield _tagged(note, f"{note['step']}: {note['error']}")
        case "step:outcome":
            yield _tagged(note, note["outcome"])
        case "step:transition":
            yield _tagged(note, f"{note['step']} → {_target(note)}")
        case "recipe:exited":
            yield _tagged(note, note["reason"])


def cost(total: float, steps: Mapping[str, float | None]) -> str:
    """Return the cost of a run, and of each of its steps that has a cost."""
    parts = ", ".join(f"{name} {_dollars(spent)}" for name, spent in steps.items() if spent)
    return f"{_dollars(total)} ({parts})" if parts else _dollars(total)


def _tagged(note: Note, text: str) -> str:
    return f"{'[' + note['event'] + ']':<{_TAG_CHARACTERS}} {text}"


def _counts(note: Note) -> str:
    visits, steps = f"{note['visitCount']}/{note['maxStepVisits']}", f"{note['stepCount']}/{note['maxTotalSteps']}"
    return f"visit {visits}, total {steps}"


def _speaker(note: Note) -> str:
    return f"{note['backend']} [{note['model']}]" if note["model"] else str(note["backend"])


def _target(note: Note) -> str:
    # In the form of the drawing of a dry run.
    return f"RESTART {note['toRecipe']}" if note.get("toRecipe") else str(note["toStep"])


def _dollars(spent: float) -> str:
    return f"${spent:.4f}"
