"""Continuity: facts that a story states about its people and things, in prose and on cards, and their contradictions."""
