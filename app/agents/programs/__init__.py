"""Programs: backends that are command lines of agents, each described in a file of its own."""
