"""The web UI: static pages over the interface at `/api`."""
