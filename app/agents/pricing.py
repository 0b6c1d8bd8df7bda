"""Pricing: the most that a call can cost, and the estimated cost of a call whose backend reports none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from app import errors
from app.agents import backends
from app.agents.configuration import BackendConfig
from app.agents.programs import catalogue
from app.domain import operations, prices, records
from app.engine import spending

MAX_BYTES = 1024 * 1024
"""Largest price file that is read."""

Configs: TypeAlias = Mapping[str, BackendConfig]
"""Backends by name."""

_BYTES_A_TOKEN = 3
_log = logging.getLogger(__name__)


class Pricing:
    """Price calls by the price file, read again when it has changed, and by `max_cost_per_call` of backends."""

    def __init__(self, file: Path | None, configs: Configs) -> None:
        self._file = file
        self._configs = configs
        self._models = backends.models(configs)
        self._seen: tuple[int, int] | None = None
        self._prices = prices.Prices()

    def quote(self, operation: operations.AgentCall) -> spending.Quote:
        """Return what a call may take, as far as it is known before it is made.

        Of a service that answers once, the longest reply and the length of the prompt tell; of a program that works
        with tools nothing does but its cap.
        """
        config = self._configs.get(operation.backend)
        most = None if config is None else config.max_cost_per_call
        if config is None or config.type in catalogue.PROGRAMS or config.type in _WORKING:
            program = None if config is None else catalogue.PROGRAMS.get(config.type)
            return spending.Quote(cost_usd=most, is_capped=program is not None and program.caps_cost)
        if operation.max_tokens is None:
            return spending.Quote(cost_usd=most)
        read = _prompt_bytes(operation) // _BYTES_A_TOKEN + 1
        price = self._current().price(operation.backend, self.model(operation.backend, operation.model))
        cost = most if price is None else price.of(read, operation.max_tokens)
        return spending.Quote(tokens=read + operation.max_tokens, cost_usd=cost)

    def estimated(self, usage: records.Usage | None, operation: operations.AgentCall) -> records.Usage | None:
        """Return the usage of a call, with an estimated price if none was reported."""
        model = self.model(operation.backend, operation.model)
        return self._current().estimated(usage, operation.backend, model)

    def model(self, backend: str, model: str | None) -> str | None:
        """Return a backend's model for a tier."""
        return self._models.get(backend, {}).get(model or "", model)

    def _current(self) -> prices.Prices:
        if self._file is None:
            return self._prices
        try:
            status = self._file.stat()
            seen = (status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                with self._file.open("rb") as file:
                    self._prices = prices.Prices.parse(file.read(MAX_BYTES))
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._prices = None, prices.Prices()
        except (OSError, errors.InputRefused) as error:
            # The prices that were read last still are the best that is known.
            _log.error("prices are not read: %s", error, extra={"file": str(self._file)})
        return self._prices


def _prompt_bytes(operation: operations.AgentCall) -> int:
    sizes = [
        len(part.encode()) if isinstance(part, str) else records.BlobRef.from_json(part["blob"]).size_bytes
        for part in operation.prompt
    ]
    return sum(sizes) + len((operation.system or "").encode())


_WORKING = ("template", "acp")
"""Types of backends, beside the known programs, that may ask a model several times for one prompt."""
