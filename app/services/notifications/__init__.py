"""Notifications: webhooks, e-mail and commands that tell what happens to runs."""
