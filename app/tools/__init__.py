"""Performers without a model: tools that read the workspace, commands, checks, and writes and moves of files."""
