"""Agents: resolve a step's `agent`, and apply the step's overrides to its configuration."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.dialects.amplifier import walk
from app.domain import library, operations, plain

UNREACHABLE = (
    "agent_missing",
    "agent_refused_root",
    "backend_unavailable",
    "missing_secrets",
    "rate_limited",
    "unauthorized",
    "unknown_backend",
    "unknown_model",
)
"""Codes of errors after which the next preference is tried."""

TRANSIENT = ("agent_idle", "agent_timeout", "backend_unavailable", "model_crashed", "rate_limited")
"""Codes of temporary errors: the network, a time-out, too many prompts."""

_TIERS = ("haiku", "sonnet", "opus")
_KNOWN = ("backend", "model", "role", "instruction", "system", "max_tokens", "providers", "session", "on_cut_off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """One way to ask an agent."""

    agent_id: str  # Id of the configured agent.
    backend: str  # Backend of the agent.
    model: str | None  # Model; None: the backend's default.
    system: str | None  # Standing instruction.
    max_tokens: int | None  # Longest reply.
    on_cut_off: operations.OnCutOff  # Treatment of a reply that reached this limit.


def find(name: str, agents: Iterable[library.Agent]) -> library.Agent | None:
    """Return the agent that a recipe names: by id, by the id after a namespace, or by archetype."""
    known = list(agents)
    short = name.rsplit(":", 1)[-1]
    for wanted in (name, short):
        for agent in known:
            if agent.id == wanted:
                return agent
    return next((agent for agent in known if agent.archetype == short), None)


def merged(below: plain.Json, above: plain.Json) -> plain.Json:
    """Merge settings: objects by field, lists of modules by module; any other value is replaced."""
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return {**below, **{name: merged(below.get(name), item) for name, item in above.items()}}
    if _modules(below) and _modules(above):
        named = {item["module"]: item for item in below}
        return list({**named, **{item["module"]: merged(named.get(item["module"]), item) for item in above}}.values())
    return above


def is_pattern(model: plain.Json) -> bool:
    """Return whether a model name is a pattern."""
    return isinstance(model, str) and any(sign in model for sign in "*?[")


def resolved(pattern: str | None, models: Mapping[str, str]) -> str | None:
    """Return the model that a pattern means.

    This is the last matching name of the backend's models, else the tier in the pattern, else None (its default).
    """
    if not is_pattern(pattern):
        return pattern
    fitting = sorted(model for model in models.values() if fnmatch.fnmatchcase(model, str(pattern)))
    # The names of newer models sort after those of older ones.
    return fitting[-1] if fitting else next((tier for tier in _TIERS if tier in str(pattern).lower()), None)


def models(
    recipe: plain.Object, named: Iterable[library.Agent | None], backends: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Return the models of all backends, if a recipe or one of its agents names a model by a pattern."""
    written = [agent.model for agent in named if agent is not None]
    for _, step in walk.placed(recipe):
        config = step.get("agent_config") or {}
        written += [step.get("model"), config.get("model"), _of_providers(config, "model")]
        written += [wanted.get("model") for wanted in step.get("provider_preferences", ())]
    return {name: dict(own) for name, own in backends.items()} if any(map(is_pattern, written)) else {}


def voices(
    agent: plain.Object,
    step: plain.Object,
    of_backends: Mapping[str, Mapping[str, str]] | None = None,
    *,
    drops_model: bool = False,
) -> tuple[Voice, ...]:
    """Return the ways to ask a step's agent, the preferred one first.

    Args:
        drops_model: Whether `provider` drops the model of `agent_config`, as drivers before version 4 did.
    """
    known, config = of_backends or {}, step.get("agent_config") or {}
    settings = merged(dict(agent), config)
    model = _of_providers(settings, "model")
    own = None if drops_model else _of_providers(config, "model") or config.get("model")
    named = {"model": own, **{name: step[name] for name in ("provider", "model") if name in step}}
    preferred = step.get("provider_preferences") or [named]
    # The agent's model belongs to the agent's provider; another provider uses its own default.
    return tuple(
        Voice(
            agent_id=agent["id"],
            backend=wanted.get("provider") or settings["backend"],
            model=resolved(
                wanted.get("model") or (None if "provider" in wanted else model or settings.get("model")),
                known.get(wanted.get("provider") or settings["backend"], {}),
            ),
            system=_system(settings),
            max_tokens=step.get("max_tokens")
            or _whole(_of_providers(settings, "max_tokens") or settings.get("max_tokens"))
            or settings.get("max_output_tokens"),
            on_cut_off="keep" if settings.get("on_cut_off") == "keep" else "fail",
        )
        for wanted in preferred
    )


def unused(agent_config: plain.Object) -> list[str]:
    """Return the settings of a step that no agent here uses, by dotted path."""
    found = [name for name in agent_config if name not in _KNOWN]
    for provider in _listed(agent_config.get("providers")):
        config = provider.get("config")
        inner = config if isinstance(config, Mapping) else {}
        found += [f"providers.{name}" for name in inner if name not in ("model", "max_tokens")]
    return found


def _modules(value: plain.Json) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) and "module" in item for item in value)


def _listed(value: plain.Json) -> Sequence[plain.Object]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _of_providers(settings: plain.Object, name: str) -> plain.Json:
    configs = (provider.get("config") for provider in _listed(settings.get("providers")))
    return next((config[name] for config in configs if isinstance(config, Mapping) and name in config), None)


def _system(settings: plain.Object) -> str | None:
    session = settings.get("session")
    reported = [settings.get("role"), settings.get("system"), settings.get("instruction")]
    reported += [session.get("instruction")] if isinstance(session, Mapping) else []
    return "\n\n".join(text for text in reported if isinstance(text, str) and text) or None


def _whole(value: plain.Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
