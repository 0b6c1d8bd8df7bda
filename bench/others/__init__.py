"""Others: what a user might pick instead, doing the same work on the same machine.

Each is installed into an environment of its own. What runs there is in `inside`, which knows only the standard library
and its product; each repetition is one child process that answers in JSON lines.
"""
