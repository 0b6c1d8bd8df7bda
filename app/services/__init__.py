"""Use cases, shared by all callers: runs, recipes, routing, prompts and more."""
