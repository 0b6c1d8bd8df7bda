"""The crash laboratory: runs a recipe repeatedly, disturbs each run at another write, and
compares the results.
"""
