"""The index in a database; SQL is spoken nowhere else."""
