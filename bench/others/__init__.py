"""Others: products that a user might choose instead, doing the same work on the same machine.

Each is installed into an environment of its own. The programs that run there are in `inside`, which imports only the
standard library and its product; each repetition is one child process that answers in JSON lines.
"""
