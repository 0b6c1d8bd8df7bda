"""The command `orchestrate` (workflow-dsl, CLI contract and extended CLI options)."""
