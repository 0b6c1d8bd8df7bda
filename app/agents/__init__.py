"""Agents: the roles of a project, and the backends that reach them."""
