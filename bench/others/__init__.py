"""
Others: what a user might pick instead, doing the same work on the same machine.
"""
