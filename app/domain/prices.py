"""Prices: what models cost by the price file, for calls whose price nobody tells."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app import errors
from app.domain import plain
from app.domain.records import Usage

MOST_MODELS = 2_000
"""Most entries of a price file."""

_MILLION = 1_000_000
_FIELDS = ("input_per_million_usd", "output_per_million_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price of a model."""

    input_per_million_usd: float
    """US dollars for a million tokens read."""
    output_per_million_usd: float
    """US dollars for a million tokens written."""

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """Return the price of tokens."""
        cost = input_tokens * self.input_per_million_usd + output_tokens * self.output_per_million_usd
        return round(cost / _MILLION, 12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A price file."""

    version: str = ""
    """Its version; recorded with each estimate."""
    models: Mapping[str, Price] = field(default_factory=dict)
    """Prices by model, or by `backend/model`; `*` stands for any characters, and the first that fits counts."""

    @classmethod
    def parse(cls, content: bytes) -> Prices:
        """Read the text of a price file.

        Raises:
            errors.InputRefused: with every flaw found.
        """
        from app.domain import json_text

        value = json_text.read(content.decode("utf-8", "replace"))
        if not isinstance(value, dict) or not isinstance(value.get("models"), dict):
            raise _refused([errors.Flaw(path="$.models", code="missing", message="must be an object of prices")])
        models = value["models"]
        found = [flaw for name, price in models.items() for flaw in _flaws(f"$.models['{name:.80}']", price)]
        if len(models) > MOST_MODELS:
            found.append(errors.Flaw(path="$.models", message=f"has more than {MOST_MODELS} entries"))
        if not isinstance(value.get("version", ""), str):
            found.append(errors.Flaw(path="$.version", message="must be a text"))
        if found:
            raise _refused(found)
        prices = {name: Price(**{each: float(price[each]) for each in _FIELDS}) for name, price in models.items()}
        return cls(version=value.get("version") or plain.sha256(content)[:12], models=prices)

    def price(self, backend: str, model: str | None) -> Price | None:
        """Return the price of a model; None: the file has none."""
        names = [f"{backend}/{model or ''}", *([model] if model else [])]
        for pattern, price in self.models.items():
            if any(fnmatch.fnmatchcase(name, pattern) for name in names):
                return price
        return None

    def estimated(self, usage: Usage | None, backend: str, model: str | None) -> Usage | None:
        """Return a usage with the estimate of its price, where nobody told one and the file has the model's."""
        if usage is None or usage.cost_usd is not None or (usage.input_tokens is None and usage.output_tokens is None):
            return usage
        price = self.price(backend, model)
        if price is None:
            return usage
        return Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_estimated_usd=price.of(usage.input_tokens or 0, usage.output_tokens or 0),
            prices_version=self.version,
        )


def _flaws(path: str, price: Any) -> list[errors.Flaw]:
    if not isinstance(price, dict):
        return [errors.Flaw(path=path, message=f"must be an object with {' and '.join(_FIELDS)}")]
    wrong = [name for name in _FIELDS if not _is_amount(price.get(name))]
    return [errors.Flaw(path=f"{path}.{name}", message="must be a number from 0, in US dollars") for name in wrong]


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _refused(found: list[errors.Flaw]) -> errors.InputRefused:
    return errors.InputRefused(f"the price file is not valid: {found[0].path} {found[0].message}", flaws=found)
