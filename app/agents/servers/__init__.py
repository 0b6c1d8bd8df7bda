"""Servers: agents that are reached over a protocol, not as a program's command line."""
