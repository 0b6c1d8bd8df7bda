"""A cluster on one machine, for trying and for tests."""
