"""A cluster on one machine, for trials and tests."""
