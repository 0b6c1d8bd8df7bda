"""The HTTP face of the use cases; it has no logic of its own."""
