"""Values and states: runs, steps, operations, records, decisions, gates, issues, plans and events."""
