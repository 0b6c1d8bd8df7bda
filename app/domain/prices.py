"""Prices: prices of models from the price file, for calls without a reported price."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app import errors
from app.domain import plain, shapes
from app.domain.records import Usage

MOST_MODELS = 2_000  # Most entries in a price file.

_MILLION = 1_000_000
_FIELDS = ("input_per_million_usd", "output_per_million_usd")
_SIZES = ("context_tokens", "max_output_tokens")
_MOST_TOKENS = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Price(shapes.Shape):
    """The price of a model."""

    input_per_million_usd: float  # US dollars for a million tokens read.
    output_per_million_usd: float  # US dollars for a million tokens written.
    context_tokens: int | None = shapes.omitted()
    """Most tokens that a request may read and write together, for the highest price of a call."""
    max_output_tokens: int | None = shapes.omitted()  # Most tokens among them that it may write.

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """Return the price of a number of tokens."""
        cost = input_tokens * self.input_per_million_usd + output_tokens * self.output_per_million_usd
        return round(cost / _MILLION, 12)

    def most(self, output_tokens: int | None) -> float | None:
        """Return the highest price of a request that writes at most this many tokens; None if unknown."""
        if self.context_tokens is None:
            return None
        bounds = (output_tokens, self.max_output_tokens, self.context_tokens)
        written = min(bound for bound in bounds if bound is not None)
        return max(self.of(self.context_tokens - written, written), self.of(self.context_tokens, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices(shapes.Shape):
    """The content of a price file."""

    version: str = ""  # Version of the file; recorded with each estimate.
    models: Mapping[str, Price] = field(default_factory=dict)
    """Prices by model, or by `backend/model`; `*` matches any characters, and the first match counts."""

    @classmethod
    def of(cls, value: Any) -> Prices:
        """Return the prices in a document; without a version, one is derived from the content.

        Raises:
            errors.RequestInvalid: the document has flaws, all of which are listed.
        """
        if not isinstance(value, dict) or not isinstance(value.get("models"), dict):
            raise _refused([errors.Flaw(path="$.models", code="missing", message="must be an object of prices")])
        models = value["models"]
        found = [flaw for name, price in models.items() for flaw in _flaws(f"$.models['{name:.80}']", price)]
        if len(models) > MOST_MODELS:
            found.append(errors.Flaw(path="$.models", message=f"has more than {MOST_MODELS} entries"))
        if not isinstance(value.get("version", ""), str) or len(value.get("version", "")) > 100:
            found.append(errors.Flaw(path="$.version", message="must be a text of at most 100 characters"))
        if found:
            raise _refused(found)
        prices = {name: _price(price) for name, price in models.items()}
        return cls(version=value.get("version") or plain.sha256(plain.canonical(models))[:12], models=prices)

    def price(self, backend: str, model: str | None) -> Price | None:
        """Return the price of a model; None if the file has none."""
        names = [f"{backend}/{model or ''}", *([model] if model else [])]
        for pattern, price in self.models.items():
            if any(fnmatch.fnmatchcase(name, pattern) for name in names):
                return price
        return None

    def estimated(self, usage: Usage | None, backend: str, model: str | None) -> Usage | None:
        """Return a usage with an estimated price, if it has no reported price and the file has the model.

        Values that are not amounts count as not reported.
        """
        usage = None if usage is None else usage.credible()
        # A reported price takes precedence, even if the file has another one.
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


def _price(given: Mapping[str, Any]) -> Price:
    fields: dict[str, Any] = {name: float(given[name]) for name in _FIELDS}
    return Price(**fields | {name: given.get(name) for name in _SIZES})


def _flaws(path: str, price: Any) -> list[errors.Flaw]:
    if not isinstance(price, dict):
        return [errors.Flaw(path=path, message=f"must be an object with {' and '.join(_FIELDS)}")]
    wrong = [name for name in _FIELDS if not _is_amount(price.get(name))]
    sizes = [name for name in _SIZES if not _is_size(price.get(name))]
    return [
        *(errors.Flaw(path=f"{path}.{name}", message="must be a number from 0, in US dollars") for name in wrong),
        *(errors.Flaw(path=f"{path}.{name}", message="must be a whole number of tokens, from 1") for name in sizes),
    ]


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _is_size(value: Any) -> bool:
    return value is None or (type(value) is int and 1 <= value <= _MOST_TOKENS)


def _refused(found: list[errors.Flaw]) -> errors.RequestInvalid:
    return errors.RequestInvalid(f"the prices are not valid: {found[0].path} {found[0].message}", flaws=found)
