"""`control-room demo`: shows on a small story, in about a minute, what Control Room does."""
