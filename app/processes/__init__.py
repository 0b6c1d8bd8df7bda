"""Child processes: one supervisor starts and ends them, and none outlives the service."""
