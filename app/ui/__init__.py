"""The web UI: static pages over the interface at `/api`; why they keep their own signals: docs/decisions/0310."""
