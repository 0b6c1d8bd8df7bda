"""Agents: who they are, and the backends through which they are reached."""
