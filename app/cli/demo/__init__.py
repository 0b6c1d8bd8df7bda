"""`control-room demo`: what Control Room does, shown on a small story in about a minute."""
