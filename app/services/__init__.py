"""Use cases, whoever calls: runs, recipes, routing, prompts."""
