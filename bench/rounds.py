"""Rounds: each round measures every workload and product once.

A machine that changes its speed therefore changes it for all.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import figures, trial, workload

Say = Callable[[str], None]
"""Reports progress to a person."""

Attempt = Callable[[str, workload.Context, str], Awaitable[figures.Raw]]
"""Executes one repetition of a workload, by its key, on a product; raises as `trial.attempt` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The extent of a measurement."""

    workloads: Sequence[workload.Workload]
    """The program's own work."""
    products: Sequence[workload.Product] = ()
    """Products to compare with the program."""
    repetitions: int = 5
    """Number of repetitions."""
    quick: bool = False
    """Whether sizes are small."""
    place: Path = field(default_factory=Path.cwd)
    """Folder on the disk that is measured."""
    cache: Path = workload.CACHE
    """Where products are installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductFound:
    """Measurements of a product."""

    label: str
    """Its name for people."""
    version: str = ""
    """Version that was measured."""
    remark: str = ""
    """What a reader of its figures should know."""
    promise: str = ""
    """When a step counted as done in the measurement."""
    absent: str = ""
    """Why the product was not measured; empty if it was."""
    workloads: Mapping[str, figures.Repetitions] = field(default_factory=dict)
    """Repetitions of the product by key of the workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All measurements."""

    workloads: Mapping[str, figures.Repetitions]
    """Repetitions of the program by key of the workload."""
    products: Sequence[ProductFound] = ()
    """The products, in order."""

    @property
    def whole(self) -> bool:
        """Return whether every repetition of the program's own work completed."""
        return all(each.raws and not each.failures for each in self.workloads.values())


class _Notes:
    """The repetitions of one workload, collected one by one."""

    def __init__(self) -> None:
        self._raws: list[figures.Raw] = []
        self._failures: list[str] = []

    def keep(self, raw: figures.Raw) -> None:
        self._raws.append(raw)

    def trouble(self, reason: str) -> None:
        if reason not in self._failures:
            self._failures.append(reason)

    def repetitions(self) -> figures.Repetitions:
        return figures.Repetitions(raws=tuple(self._raws), failures=tuple(self._failures))


async def measure(
    extent: Extent, say: Say, attempt: Attempt = trial.attempt, keep: Callable[[Found], None] | None = None
) -> Found:
    """Measure all workloads and products, in folders that are removed afterwards.

    Args:
        keep: Receives the results before the folders are removed, which takes minutes if there are many runs.
    """
    versions = {product.name: await _prepared(product, extent, say) for product in extent.products}
    notes: dict[tuple[str, str], _Notes] = {}
    with _folders(extent.place) as root:
        fresh = (root / f"trial-{number}" for number in itertools.count(1))
        for repetition in range(1, extent.repetitions + 1):
            for product, key in _turns(extent, versions):
                say(f"round {repetition} of {extent.repetitions}: {' '.join(filter(None, (product, key)))}")
                kept = root / f"kept-{product}-{key}"
                context = workload.Context(place=next(fresh), kept=kept, cache=extent.cache, quick=extent.quick)
                await _note(notes.setdefault((product, key), _Notes()), attempt(key, context, product), say)
        found = _found(extent, versions, {at: each.repetitions() for at, each in notes.items()})
        if keep is not None:
            keep(found)
        say("removing what was written")
    return found


async def _prepared(product: workload.Product, extent: Extent, say: Say) -> str | workload.Absent:
    say(f"installing {product.label}")
    try:
        return await product.prepare(extent.cache)
    except workload.Absent as absent:
        say(f"{product.label} is absent: {absent.reason}")
        return absent


def _turns(extent: Extent, versions: Mapping[str, str | workload.Absent]) -> Iterator[tuple[str, str]]:
    compared = {comparison.key for comparison in workload.COMPARISONS}
    for each in extent.workloads:
        yield trial.PROGRAM, each.key
        if each.key in compared:
            yield from ((name, each.key) for name, version in versions.items() if isinstance(version, str))


async def _note(notes: _Notes, repetition: Awaitable[figures.Raw], say: Say) -> None:
    try:
        notes.keep(await repetition)
    except workload.Absent as absent:
        notes.trouble(absent.reason)
        say(f"absent: {absent.reason}")
    except trial.TrialFailed as failed:
        notes.trouble(str(failed))
        say(f"failed: {failed}")


def _found(
    extent: Extent,
    versions: Mapping[str, str | workload.Absent],
    repetitions: Mapping[tuple[str, str], figures.Repetitions],
) -> Found:
    return Found(
        workloads={each.key: repetitions[trial.PROGRAM, each.key] for each in extent.workloads},
        products=[_product_found(product, versions[product.name], repetitions) for product in extent.products],
    )


def _product_found(
    product: workload.Product,
    version: str | workload.Absent,
    repetitions: Mapping[tuple[str, str], figures.Repetitions],
) -> ProductFound:
    if isinstance(version, workload.Absent):
        return ProductFound(label=product.label, absent=version.reason)
    own = {key: each for (name, key), each in repetitions.items() if name == product.name}
    return ProductFound(
        label=product.label, version=version, remark=product.remark, promise=product.promise, workloads=own
    )


@contextmanager
def _folders(place: Path) -> Iterator[Path]:
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()
