"""Child processes: how they are started, spoken to and ended, so that none outlives the service."""
