"""Triggers: schedules, webhooks and file drops that start runs."""
