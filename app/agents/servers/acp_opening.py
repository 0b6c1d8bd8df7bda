"""Conversations with agents of the Agent Client Protocol: start or resume one, and set mode and model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app import errors, printable
from app.agents.servers import acp_tool_policy, acp_turns
from app.agents.servers.acp_agent import Agent

if TYPE_CHECKING:
    from acp import schema

_PROTOCOL = 1
GEMINI = "gemini"  # Part of the name and of the command of Gemini CLI.
_CLEANING = (
    "Gemini CLI may have removed it: its clean-up takes continued conversations, too, unless "
    "general.sessionRetention.enabled is false in ~/.gemini/settings.json"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How a conversation is to be opened."""

    backend: str  # Name of the backend.
    cwd: str  # Folder that the agent works in.
    session_id: str | None  # The agent's name for the conversation to continue; None: a new one.
    certain: bool  # Whether the agent must have it; otherwise, a new one may be begun.
    hold: acp_tool_policy.Hold | None  # What prevents the agent from using tools; None: it may use them.
    model: str | None  # Model; None: the agent's choice.


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedConversation:
    """An open conversation."""

    session_id: str  # The agent's name for it.
    is_new: bool  # Whether it is new.
    known_as: str  # The agent's own name, in lower case.
    modes: tuple[str, ...]  # Modes that the agent offers.
    options: tuple[Any, ...]  # Further choices, the protocol's `configOptions`.


async def opened(
    agent: Agent, wish: Wish, begun: Callable[[OpenedConversation], Awaitable[None]]
) -> OpenedConversation:
    """Open a conversation."""
    from acp import schema

    client = schema.Implementation(name="control-room", title="Control Room", version="1")
    hello = await agent.ask(agent.connection.initialize(_PROTOCOL, client_info=client))
    known_as = hello.agent_info.name.lower() if hello.agent_info is not None else ""
    # A hold is made for one agent, and does not hold another one.
    if wish.hold is not None and wish.hold.name not in known_as:
        raise unheld(wish.backend, f"it calls itself {known_as or 'nothing'!r:.80}, not {wish.hold.name}")
    conversation = await _resumed(agent, wish, hello, known_as)
    if conversation is None:
        answer = await agent.ask(agent.connection.new_session(wish.cwd, mcp_servers=[], **_meta(wish)))
        conversation = _opened(answer.session_id, answer, known_as, is_new=True)
        await begun(conversation)
    await _choose_mode(agent, wish, conversation)
    if wish.model is not None:
        await _choose_model(agent, wish, conversation, wish.model)
    return conversation


def unheld(backend: str, why: str) -> errors.AgentFailed:
    """Return the refusal of a prompt without tools."""
    message = f"The backend {backend} cannot be kept from using tools, and this prompt forbids them: {why}."
    return errors.AgentFailed(message, code="tools_cannot_be_turned_off", detail={"backend": backend})


async def _resumed(
    agent: Agent, wish: Wish, hello: schema.InitializeResponse, known_as: str
) -> OpenedConversation | None:
    """Continue a conversation; return None if a new one is to be begun."""
    import acp

    if wish.session_id is None:
        return None
    why = "it cannot do so in a new process"
    for way in _ways(agent, hello):
        try:
            answer = await agent.ask(way(cwd=wish.cwd, session_id=wish.session_id, mcp_servers=[], **_meta(wish)))
            return _opened(wish.session_id, answer, known_as)
        except acp.RequestError as error:
            refusal = acp_turns.refused(wish.backend, error)
            # Any other refusal, such as one for the key, would affect a new conversation too.
            if refusal.code != "agent_error":
                raise
            why = str(refusal.detail["told"])
    # A step that relies on the past must not continue without it.
    if wish.certain:
        if GEMINI in known_as:
            why = f"{why.rstrip('.')}. {_CLEANING}"
        raise acp_turns.unknown_session(wish.backend, wish.session_id, why)
    return None


def _ways(agent: Agent, hello: schema.InitializeResponse) -> Iterator[Callable[..., Awaitable[Any]]]:
    """Yield ways to continue a conversation, the quickest first: loading a conversation repeats all of it."""
    can = hello.agent_capabilities
    if can is not None and can.session_capabilities is not None and can.session_capabilities.resume is not None:
        yield agent.connection.resume_session
    if can is not None and can.load_session:
        yield agent.connection.load_session


def _meta(wish: Wish) -> dict[str, Any]:
    return {} if wish.hold is None else dict(wish.hold.meta)


def _opened(
    session_id: str,
    answer: schema.NewSessionResponse | schema.LoadSessionResponse | schema.ResumeSessionResponse | None,
    known_as: str,
    *,
    is_new: bool = False,
) -> OpenedConversation:
    options = tuple((answer.config_options if answer is not None else None) or ())
    modes = answer.modes if answer is not None else None
    offered = [mode.id for mode in modes.available_modes] if modes is not None else []
    if (option := _option(options, "mode")) is not None:
        offered += _values(option)
    return OpenedConversation(
        session_id=session_id, is_new=is_new, known_as=known_as, modes=tuple(offered), options=options
    )


async def _choose_mode(agent: Agent, wish: Wish, conversation: OpenedConversation) -> None:
    import acp

    mode = acp_tool_policy.unasked(conversation.modes) if wish.hold is None else wish.hold.mode
    if mode is None:
        return
    option = _option(conversation.options, "mode")
    try:
        if option is not None and mode in _values(option):
            await agent.ask(agent.connection.set_config_option(option.id, conversation.session_id, mode))
        else:
            await agent.ask(agent.connection.set_session_mode(conversation.session_id, mode))
    except acp.RequestError as error:
        # In any other mode the agent asks for permission, and gets it.
        if wish.hold is not None:
            raise unheld(wish.backend, f"it does not take the mode {mode}") from error


async def _choose_model(agent: Agent, wish: Wish, conversation: OpenedConversation, model: str) -> None:
    import acp

    option = _option(conversation.options, "model")
    offered = {} if option is None else _values(option)
    # Users write the displayed name of a model, or its value.
    named = next((value for value, name in offered.items() if model in (value, name)), model)
    try:
        if option is not None:
            await agent.ask(agent.connection.set_config_option(option.id, conversation.session_id, named))
            return
        why = "it offers no choice of models"
    except acp.RequestError as error:
        why = str(error)
    message = printable.sentence(f"The agent {wish.backend} does not take the model {model!r:.80}: {why}")
    raise errors.AgentFailed(message, code="unknown_model", detail={"model": model, "models": sorted(offered)[:50]})


def _option(options: tuple[Any, ...], category: str) -> schema.SessionConfigOptionSelect | None:
    found = [option for option in options if option.type == "select"]
    return next((option for option in found if category in (option.category, option.id)), None)


def _values(option: schema.SessionConfigOptionSelect) -> dict[str, str]:
    values: dict[str, str] = {}
    for choice in option.options:
        for single in getattr(choice, "options", None) or [choice]:
            values[single.value] = single.name
    return values
