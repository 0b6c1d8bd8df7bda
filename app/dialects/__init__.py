"""Recipe languages, each in a folder that can be read independently."""
