"""The benchmark: how much work the service does in a second, compared with this machine's own rates and other products.

The benchmark uses the program as the service does and is not a part of it: `app` does not depend on it.
"""
