"""What a story states about its people and things, read from prose and cards, and its contradictions."""
