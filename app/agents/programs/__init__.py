"""Programs: backends that are command-line agents, each described in its own file."""
