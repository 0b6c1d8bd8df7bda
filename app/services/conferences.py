"""Conferences: collect several agents' opinions on the same evidence; each conference is a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from app import errors
from app.domain import authors, library, plain
from app.engine import stores
from app.flows import conference
from app.flows.conference import schema
from app.services import requests
from app.services.recipe_versions import RecipeVersion
from app.services.requests import StartRequest
from app.services.runs import Runs

MESSAGE_CHARACTERS = schema.MESSAGE_CHARACTERS  # Longest message.
MOST_AGENTS = schema.MOST_AGENTS  # Most agents of one conference.

USUAL_TOOL_CALLS, MOST_TOOL_CALLS = schema.USUAL_TOOL_CALLS, schema.MOST_TOOL_CALLS
"""Tool calls of the chief by default, and at most."""

_DESCRIPTION_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NewConference:
    """A requested conference."""

    message: str  # Question to the team.
    agents: Sequence[str] | None = None
    """Agents, each by id or archetype, the chief, too; None: all that take part in conferences except the chief."""
    allowed_tools: Sequence[str] | None = None  # Tools that the chief may call; None: all, empty: none.
    require_tool: bool = False  # Whether at least one tool call of the chief must succeed with a result.
    max_tool_calls: int = USUAL_TOOL_CALLS  # Most tool calls of the chief.
    session_id: str | None = None  # Work session; None: the parent's, or a new one.
    working_dir: str | None = None  # Workspace, absolute or below the project; None: the project.
    labels: Mapping[str, str] = field(default_factory=dict)  # Labels for finding the run again.
    priority: int = 0  # -100 to 100; higher goes first.
    parent_run_id: str | None = None  # Run that asks.
    runs_above: int | None = None
    """Number of runs above this one, if its parent may be of another project."""
    idempotency_key: str | None = None  # Key by which a repeated request finds the same conference.
    owner: Literal["service", "process"] = "service"  # Owner that continues the run.


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(requests.Started):
    """An accepted conference, which is a run."""

    published_as: ClassVar[str] = "ConferenceStarted"

    session_id: str  # Work session of its receipts.


class Conferences:
    """Starts conferences; for everything else, callers use the run of a conference.

    Args:
        runs: Use cases of runs.
        store: Finds the run of a repeated request.
        library: Returns tools and agents as they are now.
    """

    def __init__(self, *, runs: Runs, store: stores.RunStore, library: Callable[[], library.Library]) -> None:
        self._runs = runs
        self._store = store
        self._library = library
        self._dialect = conference.Conference()

    async def start(
        self, new: NewConference, author: authors.Author | None = None, asked_by: str | None = None
    ) -> Started:
        """Start a conference; a repeated request with the same key finds the first one.

        Args:
            asked_by: Run whose agent or command asks, if the request names no parent.

        Raises:
            errors.RequestInvalid: names every unusable agent, tool and value; `no_chief`; or as for any run.
            errors.Conflict: `idempotency_conflict`.
            errors.WriteFailed: the disk is full or failing.
        """
        request = _request(new)
        repeated = await self._repeated(request)
        if repeated is not None:
            view = await self._runs.reader.view(repeated)
            return Started(run_id=repeated, session_id=view.start.session_id, status=view.status, existed=True)
        started = await self._runs.start(request, self._recipe_version(new), author, asked_by)
        view = await self._runs.reader.view(started.run_id)
        return Started(
            run_id=started.run_id, session_id=view.start.session_id, status=started.status, existed=started.existed
        )

    async def _repeated(self, request: StartRequest) -> str | None:
        # Before the agents are resolved: a repetition remains one if an agent has been renamed since.
        if request.idempotency_key is None:
            return None
        return await self._store.find_repeated(request.idempotency_key, request.sha256())

    def _recipe_version(self, new: NewConference) -> RecipeVersion:
        # One snapshot of the library, so that the checks and the run see the same agents.
        definition_cache = self._library()
        flaws = list(_message_flaws(new.message))
        recipe = self._dialect.recipe(_document(new, _chosen(new.agents, definition_cache)))
        recipe_version = RecipeVersion(recipe, definition_cache, self._dialect)
        flaws += recipe_version.flaws
        if flaws:
            code = flaws[0].code if flaws[0].code == "no_chief" else None
            raise errors.RequestInvalid(f"{flaws[0].path}: {flaws[0].message}", code=code, flaws=flaws)
        return recipe_version


def _request(new: NewConference) -> StartRequest:
    # It contains the original request, so that a repetition can be distinguished from another request.
    return StartRequest(
        recipe=_document(new, new.agents),
        dialect=conference.NAME,
        description=" ".join(new.message.split())[:_DESCRIPTION_CHARACTERS],
        args={"message": new.message},
        session_id=new.session_id,
        working_dir=new.working_dir,
        labels=new.labels,
        priority=new.priority,
        parent_run_id=new.parent_run_id,
        runs_above=new.runs_above,
        idempotency_key=new.idempotency_key,
        owner=new.owner,
    )


def _document(new: NewConference, agents: Sequence[str] | None) -> dict[str, plain.Json]:
    return {
        "id": conference.NAME,
        "agents": None if agents is None else list(agents),
        "allowed_tools": None if new.allowed_tools is None else list(new.allowed_tools),
        "require_tool": new.require_tool,
        "max_tool_calls": new.max_tool_calls,
        "evidence_characters": schema.USUAL_EVIDENCE_CHARACTERS,
    }


def _chosen(named: Sequence[str] | None, definition_cache: library.Library) -> list[str]:
    if named is None:
        asked = (agent for agent in definition_cache.agents if agent.takes_part_in(conference.NAME))
        return [agent.id for agent in asked if agent.archetype != conference.CHIEF]
    return [_id_of(name, definition_cache) for name in named]


def _id_of(name: str, definition_cache: library.Library) -> str:
    """Return the id of the agent that a name refers to, or the name itself if no agent matches."""
    if any(agent.id == name for agent in definition_cache.agents):
        return name
    players = [agent for agent in definition_cache.agents if agent.archetype == name]
    conferring = [agent for agent in players if agent.takes_part_in(conference.NAME)]
    return next((agent.id for agent in (*conferring, *players)), name)


def _message_flaws(message: str) -> Sequence[errors.Flaw]:
    if not message.strip():
        return [errors.Flaw(path="$.message", code="missing", message="says nothing")]
    if len(message) > MESSAGE_CHARACTERS:
        return [errors.Flaw(path="$.message", message=f"has more than {MESSAGE_CHARACTERS} characters")]
    return []
