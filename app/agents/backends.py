"""Backends: create the configured backends by name, and list their types."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from app import errors, printable
from app.agents import configuration, rate_limits
from app.agents.configuration import TIERS, BackendConfig, BackendContext
from app.agents.json_files import nearest
from app.agents.programs import catalogue, template
from app.agents.programs.program import Program
from app.agents.servers import anthropic_http, openai_http, services
from app.domain import library
from app.engine import agent_ports


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendType:
    """A kind of backend."""

    make: Callable[[BackendConfig, BackendContext], agent_ports.AgentBackend]  # Create a backend; starts no process.
    lacks: Callable[[BackendConfig, BackendContext], str | None]  # Return why it cannot work here; starts no process.
    fields: frozenset[str] = frozenset()  # Fields that it takes in `agents.json`, beside type and models.
    any_of: frozenset[str] = frozenset()  # Fields of which exactly one is required.
    needed: frozenset[str] = frozenset()  # Required fields.
    forgets: Callable[[BackendConfig], str | None] = lambda _: None  # Why the backend cannot continue a conversation.
    key_variable: str | None = None  # Environment variable with the key, unless `agents.json` names another one.
    models: Mapping[str, str] = field(default_factory=dict)  # Default models for haiku, sonnet and opus.
    is_service: bool = False  # Whether it is a model behind HTTP, without access to the workspace.
    ends_silence: bool = False  # Whether it ends a silent prompt itself, with all its processes.


class Backends:
    """The configured backends, each created at its first use."""

    def __init__(self, configs: Mapping[str, BackendConfig], context: BackendContext) -> None:
        self._configs = configs
        self._limits = rate_limits.RateLimits(configs, context.clock, context.pauses, context.rates)
        self._context = dataclasses.replace(context, get=self.get, limited=self._limited)
        self._made: dict[str, agent_ports.AgentBackend] = {}
        self._limits.reload()

    def get(self, name: str) -> agent_ports.AgentBackend:
        """Return a backend by name.

        Raises:
            errors.AgentFailed: `unknown_backend`; the message names the nearest one.
            errors.ConfigurationError: it is of a type that does not exist.
        """
        # Created at first use: a service does not load a backend that none of its runs uses.
        if name not in self._made:
            config = self._config(name)
            self._made[name] = type_of(config.type).make(config, self._context)
        return self._made[name]

    @property
    def services(self) -> frozenset[str]:
        """Return the names of the backends that are models behind HTTP; they need no workspace."""
        return frozenset(
            name for name, config in self._configs.items() if config.type in TYPES and TYPES[config.type].is_service
        )

    def ask(self, name: str, prompt: agent_ports.AgentPrompt) -> Coroutine[Any, Any, agent_ports.AgentReply]:
        """Send a prompt, and end it when it has been silent for too long.

        Raises:
            errors.AgentFailed, errors.ConfigurationError: as `get`; `agent_idle`, or what the backend raises.
        """
        backend, config = self.get(name), self._configs.get(name)
        idle_seconds = None if config is None else configuration.with_idle(config, prompt).idle_seconds
        # Program backends end silent prompts themselves, where they read the output.
        if config is None or idle_seconds is None or type_of(config.type).ends_silence:
            return backend.prompt(prompt)
        from app.agents import silence

        limit = self._limit(name, prompt)
        return silence.ended(backend, prompt, idle_seconds, lambda: limit.until is not None)

    def turn(self, name: str, prompt: agent_ports.AgentPrompt) -> AbstractAsyncContextManager[None]:
        """Wait until the limits of a backend and model, which all runs share, let a prompt begin.

        Raises:
            errors.AgentFailed, errors.ConfigurationError: as `get`.
        """
        self._limits.reload()
        return self._limit(name, prompt).turn(prompt.live)

    def _limit(self, name: str, prompt: agent_ports.AgentPrompt) -> rate_limits.RateLimit:
        return self._limits.of(name, prompt.model or self.get(name).resolve_model(library.USUAL_MODEL))

    def _limited(self, name: str, model: str | None, seconds: float) -> None:
        self._limits.pause(name, model, seconds)

    def names(self) -> list[str]:
        """Return the names of all backends."""
        return sorted(self._configs)

    def check(self) -> list[tuple[str, str]]:
        """Return the name of each backend that cannot work here, and the reason, without starting a process."""
        lacks = [(name, _lack(config, self._context)) for name, config in sorted(self._configs.items())]
        return [(name, lack) for name, lack in lacks if lack is not None]

    def lack(
        self, name: str, *, continues: bool = False, elsewhere: bool = False, model: str | None = None
    ) -> str | None:
        """Return the reason why a backend cannot work here, None if it can, without starting a process.

        Args:
            continues: Whether the prompt continues a conversation.
            elsewhere: Whether it works on other machines; then only the configuration is checked.
            model: Model that is asked for; None: not known.
        """
        config = self._configs.get(name)
        if config is None:
            return printable.sentence(f"There is no backend {name!r:.80}; {nearest(name, sorted(self._configs))}")
        lack = None if elsewhere else _lack(config, self._context)
        if lack is None and continues:
            lack = TYPES[config.type].forgets(config)
        is_unnamed = model in TIERS and TYPES[config.type].is_service and model not in models({name: config})[name]
        return services.no_model(name, str(model)) if lack is None and is_unnamed else lack

    async def close(self) -> None:
        """Close the backends, and free their resources."""
        while self._made:
            _, backend = self._made.popitem()
            await backend.close()
        await self._limits.close()

    def _config(self, name: str) -> BackendConfig:
        try:
            return self._configs[name]
        except KeyError:
            known = sorted(self._configs)
            raise errors.AgentFailed(
                f"There is no backend {name!r:.80}; {nearest(name, known)}",
                code="unknown_backend",
                detail={"backend": name, "backends": known},
            ) from None


def type_of(name: str) -> BackendType:
    """Return the backend type of a name."""
    try:
        return TYPES[name]
    except KeyError:
        raise errors.ConfigurationError(
            f"Unknown backend type {name!r:.80}; {nearest(name, sorted(TYPES))}",
            code="unknown_backend_type",
            detail={"type": name, "types": sorted(TYPES)},
        ) from None


def key_variables() -> frozenset[str]:
    """Return the environment variables that hold keys of backends even if `agents.json` does not name them."""
    of_programs = {name for program in catalogue.PROGRAMS.values() for name in program.keys}
    return frozenset(of_programs | {kind.key_variable for kind in TYPES.values() if kind.key_variable is not None})


def withheld_from(program: str, variables: Iterable[str]) -> frozenset[str]:
    """Return the variables that a command does not get: keys of backends, except those of its own program."""
    own = [known for known in catalogue.PROGRAMS.values() if program in known.commands]
    return frozenset(variables).difference(*(known.keys for known in own))


def models(configs: Mapping[str, BackendConfig]) -> dict[str, dict[str, str]]:
    """Return the known models of each backend for haiku, sonnet and opus."""
    own = {name: TYPES[config.type].models if config.type in TYPES else {} for name, config in configs.items()}
    return {
        name: {**(own[name] if config.base_url is None else {}), **config.models} for name, config in configs.items()
    }


def _lack(config: BackendConfig, context: BackendContext) -> str | None:
    try:
        return type_of(config.type).lacks(config, context)
    except errors.ConfigurationError as error:
        return error.message


# A service imports only the backends that it uses.


def _local(config: BackendConfig, _: BackendContext) -> agent_ports.AgentBackend:
    from app.agents import local

    return local.LocalBackend(config.name)


def _local_lacks(_: BackendConfig, __: BackendContext) -> str | None:
    from app.agents import local

    return local.lacks()


def _scripted(config: BackendConfig, context: BackendContext) -> agent_ports.AgentBackend:
    from app.agents import scripted

    if config.record is not None:
        recording = config.record
        return scripted.RecordingBackend(
            config.name, scripted.Script(recording.file, recorded=True), lambda: context.get(recording.backend)
        )
    if config.file is None:
        raise errors.ConfigurationError(f"The backend {config.name} is scripted and names no file.")
    return scripted.ScriptedBackend(config.name, scripted.Script(config.file), context.clock, config.models)


def _model_forgets(config: BackendConfig) -> str | None:
    return f"The backend {config.name} is the local model, which cannot continue a conversation."


def _template_forgets(config: BackendConfig) -> str | None:
    if config.resume:
        return None
    return f"The backend {config.name} cannot continue a conversation: it has no `resume` in agents.json."


def _script_lacks(config: BackendConfig, _: BackendContext) -> str | None:
    if config.file is None:
        return None
    from app.agents import entries

    try:
        # Read here, so that an invalid script is reported before a run needs it.
        entries.read(config.file)
    except errors.InputRefused as invalid:
        return f"{config.file}: {'; '.join(f'{flaw.path} {flaw.message}' for flaw in invalid.flaws[:5])}"
    return None


def _acp(config: BackendConfig, context: BackendContext) -> agent_ports.AgentBackend:
    from app.agents.servers import acp_backend

    return acp_backend.AcpBackend(config, context)


def _acp_lacks(config: BackendConfig, context: BackendContext) -> str | None:
    from app.agents.servers import acp_backend

    return _message(acp_backend.lacks(config, context.environ))


def _of_program(program: Program, config: BackendConfig, context: BackendContext) -> agent_ports.AgentBackend:
    from app.agents.programs import backend

    return backend.ProgramBackend(program, config, context)


def _program_lacks(program: Program, config: BackendConfig, context: BackendContext) -> str | None:
    from app.agents.programs import backend

    return backend.lacks(program, config, context)


def _program(program: Program) -> BackendType:
    of_service = {"base_url": program.endpoint_variable, "api_key_env": program.key_variable}
    return BackendType(
        make=functools.partial(_of_program, program),
        lacks=functools.partial(_program_lacks, program),
        fields=_OF_PROGRAMS | program.fields | {field for field, variable in of_service.items() if variable},
        key_variable=program.key_variable,
        models=program.models,
        ends_silence=True,
    )


def _service(vendor: services.Vendor) -> BackendType:
    return BackendType(
        make=lambda config, context: services.ServiceBackend(config, vendor, context),
        lacks=lambda config, context: _message(vendor.lacks(config, context.environ)),
        fields=frozenset({"base_url", "api_key_env", "idle_seconds"}),
        key_variable=vendor.key_variable,
        models=vendor.models,
        is_service=True,
    )


def _message(lack: errors.AgentFailed | None) -> str | None:
    return None if lack is None else lack.message


_OF_PROGRAMS = frozenset({"command", "arguments", "idle_seconds", "secrets"})

TYPES: Mapping[str, BackendType] = {
    **{name: _program(program) for name, program in catalogue.PROGRAMS.items()},
    "template": BackendType(
        make=lambda config, context: _of_program(template.program(config), config, context),
        lacks=lambda config, context: _program_lacks(template.program(config), config, context),
        fields=frozenset({"command", "resume", "tools_on", "tools_off", "reply", "idle_seconds", "secrets"}),
        needed=frozenset({"command"}),
        forgets=_template_forgets,
        ends_silence=True,
    ),
    "openai": _service(openai_http.OPENAI),
    "anthropic": _service(anthropic_http.ANTHROPIC),
    "acp": BackendType(
        make=_acp,
        lacks=_acp_lacks,
        fields=_OF_PROGRAMS,
        needed=frozenset({"command"}),
        ends_silence=True,
    ),
    "local": BackendType(
        make=_local,
        lacks=_local_lacks,
        fields=frozenset({"idle_seconds"}),
        forgets=_model_forgets,
    ),
    "scripted": BackendType(
        make=_scripted,
        lacks=_script_lacks,
        fields=frozenset({"file", "record", "idle_seconds"}),
        any_of=frozenset({"file", "record"}),
    ),
}
"""Every type, by its name in `agents.json`."""


def with_idle_seconds(found: Mapping[str, BackendConfig], seconds: float) -> dict[str, BackendConfig]:
    """Return the backends, with this limit of silence for those that have none and can be silent too long."""
    return {
        name: dataclasses.replace(config, idle_seconds=seconds)
        if config.idle_seconds is None and "idle_seconds" in TYPES[config.type].fields
        else config
        for name, config in found.items()
    }
