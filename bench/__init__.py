"""The benchmark: what the service does in a second, beside what this machine can do and what others do on it.

It uses the program as the service does, and is no part of it: nothing in `app` knows of it.
"""
