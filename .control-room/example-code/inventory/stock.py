"""What a shop has in stock."""

from __future__ import annotations

from dataclasses import dataclass, field


class OutOfStock(Exception):
    """There are fewer items than were asked for."""


@dataclass
class Stock:
    """Items by name, with their numbers."""

    items: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, number: int = 1) -> int:
        """Add items and return how many there are now."""
        if number < 1:
            raise ValueError(f"the number must be at least 1, not {number}")
        self.items[name] = self.items.get(name, 0) + number
        return self.items[name]

    def take(self, name: str, number: int = 1) -> int:
        """Take items away and return how many are left."""
        there = self.items.get(name, 0)
        if number > there:
            raise OutOfStock(f"{number} of {name} were asked for, and {there} are there")
        self.items[name] = there - number
        return self.items[name]

    def short(self, least: int) -> list[str]:
        """Return the names of the items of which there are fewer than `least`."""
        return sorted(name for name, number in self.items.items() if number < least)
