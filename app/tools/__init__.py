"""Performers without a model: tools that read the workspace, commands, checks, and what moves or writes files."""
