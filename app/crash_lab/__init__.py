"""The crash laboratory: runs a recipe again and again, disturbs each run at another write, and
compares the results.
"""
