"""The HTTP interface of the use cases, without logic of its own."""
