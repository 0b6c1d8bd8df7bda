"""Use cases, for every caller: runs, recipes, routing, prompts."""
