"""The command `agent-recipes` (agent-recipes, 9)."""
