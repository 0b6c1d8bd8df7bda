"""Recipe languages: each a folder that can be read alone."""
