"""Notifications: webhooks, e-mail and commands that report on runs."""
