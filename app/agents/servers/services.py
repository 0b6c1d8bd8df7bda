"""Services: models behind HTTP, reached through their vendors' own packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import util
from typing import Literal, Protocol

from app import clock, errors, extras
from app.agents.configuration import TIERS, BackendConfig, BackendContext
from app.agents.servers import transcripts, tries
from app.domain import library, plain, records
from app.engine import agent_ports

TRIES = 5  # Most tries of one prompt, while the service answers 429 or 5xx or cannot be reached.
MOST_WAIT_SECONDS = 120.0  # Longest `Retry-After` that the backend waits for; a longer one fails the try.
SILENCE_SECONDS = 600.0  # Longest time between two parts of a streamed reply.
CONNECT_SECONDS = 10.0  # Longest time until a connection is open.
MAX_REPLY_BYTES = 16 * 1024 * 1024  # Largest reply that is read.

_NO_KEY = "none"

Ending = Literal["complete", "cut", "refused"]  # Whether a reply ended by itself, reached its limit, or was refused.


def _unlimited(_model: str | None, _seconds: float) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The address of a service, and the key for it."""

    base_url: str | None  # Its address; None: the vendor's.
    api_key: str  # The key; a dummy value if the service needs none.
    limited: Callable[[str | None, float], None] = _unlimited  # Called for a 429: its model, and the seconds to wait.


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request to a service."""

    model: str  # Model of the service.
    system: str | None  # Standing instruction.
    messages: Sequence[transcripts.Message]  # The conversation; its last message is the prompt.
    max_tokens: int | None  # Longest reply; None: the service's own limit, or a large one.
    reply_schema: plain.Object | None  # JSON Schema that the reply must fit.
    timeout_seconds: float  # Longest time until the whole reply has arrived.
    hear: Callable[[str], None] = agent_ports.unheard  # Takes in the reply while it arrives, if the service streams it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The reply of a service."""

    text: str  # The text of the reply, perhaps cut off.
    usage: records.Usage | None  # Tokens; None if it reports none.
    ending: Ending  # How the reply ended.


class Service(Protocol):
    """One vendor's interface."""

    async def ask(self, question: Question) -> Completion:
        """Send a request, and repeat it as long as the service is busy; a cancellation closes the connection."""

    async def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """Facts about a vendor."""

    package: str  # Package for its API; an extra of this project has the same name.
    key_variable: str  # Environment variable of the key if the configuration names none.
    models: Mapping[str, str]  # Models for the tiers, at the vendor's own address.
    open: Callable[[Account, clock.Clock], Service]  # Create a service; opens no connection.

    def lacks(self, config: BackendConfig, environ: Mapping[str, str]) -> errors.AgentFailed | None:
        """Return the reason why a backend cannot be used; None if it can."""
        if util.find_spec(self.package) is None:
            return missing(config.name, self.package, self.package)
        variable = self.key_of(config)
        if variable is None or environ.get(variable, "").strip():
            return None
        message = f"The backend {config.name} needs a key: the environment lacks {variable}."
        return errors.AgentFailed(message, code="unauthorized", detail={"api_key_env": variable})

    def key_of(self, config: BackendConfig) -> str | None:
        """Return the variable of the key; None if none is sent: another service must not see the vendor's key."""
        return config.api_key_env or (self.key_variable if config.base_url is None else None)


class ServiceBackend:
    """A model behind HTTP, without tools or memory; this backend stores the conversation."""

    def __init__(self, config: BackendConfig, vendor: Vendor, context: BackendContext) -> None:
        self._config = config
        self._vendor = vendor
        self._context = context
        self._service: Service | None = None

    def get_name(self) -> str:
        return self._config.name

    def resolve_model(self, tier: str) -> str:
        """Return a tier's model, configured or the vendor's; return any other name unchanged."""
        known = self._vendor.models if self._config.base_url is None else {}
        return self._config.models.get(tier) or known.get(tier, tier)

    async def prompt(self, prompt: agent_ports.AgentPrompt) -> agent_ports.AgentReply:
        """Send the conversation with the prompt at its end, and store both the prompt and its reply."""
        service = self._service = self._service or self._opened()
        question = Question(
            model=self._model(prompt.model),
            system=prompt.system,
            messages=await transcripts.messages(self._context.sessions, prompt),
            max_tokens=prompt.max_tokens,
            reply_schema=prompt.reply_schema,
            timeout_seconds=prompt.timeout_seconds or SILENCE_SECONDS,
            hear=prompt.hear,
        )
        with tries.noted(prompt.live):
            answer = await service.ask(question)
        error, is_cut = _error(answer), answer.ending == "cut"
        # A reply that is not accepted does not become part of the conversation.
        if error is None and (prompt.keeps_cut_off or not is_cut):
            await transcripts.remember(self._context.sessions, self._config.name, prompt, answer.text)
        return agent_ports.AgentReply(
            text="" if error else answer.text,
            agent_session_id=prompt.agent_session_id,
            usage=answer.usage,
            finish=records.LENGTH if is_cut else None,
            error=error,
        )

    async def close(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            await service.close()

    def _opened(self) -> Service:
        environ = self._context.environ
        if (lack := self._vendor.lacks(self._config, environ)) is not None:
            raise lack
        variable = self._vendor.key_of(self._config)
        # The packages require a key; a user's own server needs none.
        api_key = _NO_KEY if variable is None else environ[variable].strip()
        limited = partial(self._context.limited, self._config.name)
        account = Account(base_url=self._config.base_url, api_key=api_key, limited=limited)
        return self._vendor.open(account, self._context.clock)

    def _model(self, requested: str | None) -> str:
        model = requested or self.resolve_model(library.USUAL_MODEL)
        if model in TIERS:
            raise errors.AgentFailed(no_model(self._config.name, model), code="unknown_model", detail={"model": model})
        return model


def no_model(backend: str, tier: str) -> str:
    """Return the message for a backend without a model for haiku, sonnet or opus."""
    return f"The backend {backend} names no model for {tier}; give `models` in agents.json."


def missing(backend: str, package: str, extra: str) -> errors.AgentFailed:
    """Return the error that names the package to install."""
    install = extras.install(extra)
    message = f"The backend {backend} needs the package {package}, which is not installed. Install it with: {install}"
    return errors.AgentFailed(message, code="agent_missing", detail={"package": package, "install": install})


def _error(answer: Completion) -> records.StepError | None:
    if answer.ending != "refused":
        return None
    message = f"The model refused the prompt: {answer.text.strip() or 'it gave no reason'}"
    return records.StepError(code="prompt_refused", message=plain.preview(message))
