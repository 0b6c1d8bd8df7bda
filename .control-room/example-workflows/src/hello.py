"""Greet people by name."""

import sys


def greeting(name: str) -> str:
    """Return what is said to somebody."""
    return f"Hello, {name}!"


if __name__ == "__main__":
    for person in sys.argv[1:] or ["world"]:
        print(greeting(person))
