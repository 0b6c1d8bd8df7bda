"""The driver of session plans: a plan is a run, its tasks are runs that it starts, and its changes are inputs."""
