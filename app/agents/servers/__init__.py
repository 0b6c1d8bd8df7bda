"""Servers: agents that a protocol reaches, not a program's command line."""
