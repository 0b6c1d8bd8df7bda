"""Pricing: the most that a call can cost, and the estimated cost of a call whose backend reports none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from app.agents import backends
from app.agents.configuration import BackendConfig
from app.agents.programs import catalogue
from app.domain import operations, prices, records
from app.engine import spending

Configs: TypeAlias = Mapping[str, BackendConfig]  # Backends by name.

_BYTES_A_TOKEN = 3


class Pricing:
    """Price calls by the price file, and by `max_cost_per_call` of backends.

    Args:
        current: Returns the prices in force; called for each quote.
    """

    def __init__(self, current: Callable[[], prices.Prices], configs: Configs) -> None:
        self._current = current
        self._configs = configs
        self._models = backends.models(configs)

    def quote(self, operation: operations.Operation) -> spending.Quote:
        """Return what a call may take, as far as it is known before the call.

        For a service that answers once, the longest reply and the length of the prompt set the price; for a program
        that works with tools, only its cap does.
        """
        if not isinstance(operation, operations.AgentCall):
            # A program that a recipe calls itself reports neither tokens nor a price.
            return spending.Quote()
        config = self._configs.get(operation.backend)
        most = None if config is None else config.max_cost_per_call
        # A program may call its model any number of times; only its own cap limits the cost.
        if not self._answers_once(operation.backend):
            program = None if config is None else catalogue.PROGRAMS.get(config.type)
            return spending.Quote(cost_usd=most, is_capped=program is not None and program.caps_cost)
        # Without a limit of the reply, the price has no limit.
        if operation.max_tokens is None:
            return spending.Quote(cost_usd=most)
        read = _prompt_bytes(operation) // _BYTES_A_TOKEN + 1
        price = self._current().price(operation.backend, self.model(operation.backend, operation.model))
        cost = most if price is None else price.of(read, operation.max_tokens)
        return spending.Quote(tokens=read + operation.max_tokens, cost_usd=cost)

    def worst(self, backend: str, model: str | None, max_tokens: int | None) -> spending.Quote:
        """Return the most that any call of a backend can take, with any prompt.

        Args:
            max_tokens: Longest reply; None: not known.
        """
        config = self._configs.get(backend)
        most = None if config is None else config.max_cost_per_call
        price = self._current().price(backend, self.model(backend, model)) if self._answers_once(backend) else None
        if price is None:
            return spending.Quote(cost_usd=most)
        bounds = [bound for bound in (most, price.most(max_tokens)) if bound is not None]
        return spending.Quote(tokens=price.context_tokens, cost_usd=min(bounds, default=None))

    def estimated(self, usage: records.Usage | None, operation: operations.AgentCall) -> records.Usage | None:
        """Return the usage of a call, with an estimated price if the backend reported none."""
        model = self.model(operation.backend, operation.model)
        return self._current().estimated(usage, operation.backend, model)

    def model(self, backend: str, model: str | None) -> str | None:
        """Return a backend's model for a tier."""
        return self._models.get(backend, {}).get(model or "", model)

    def _answers_once(self, backend: str) -> bool:
        config = self._configs.get(backend)
        return config is not None and config.type not in catalogue.PROGRAMS and config.type not in _WORKING


def _prompt_bytes(operation: operations.AgentCall) -> int:
    sizes = [
        len(part.encode()) if isinstance(part, str) else records.BlobRef.from_json(part["blob"]).size_bytes
        for part in operation.prompt
    ]
    return sum(sizes) + len((operation.system or "").encode())


_WORKING = ("template", "acp")
"""Types of backends, besides the known programs, that may call a model several times for one prompt."""
