"""Control Room: a durable run manager for agent recipes."""

__version__ = "0.1.0"
