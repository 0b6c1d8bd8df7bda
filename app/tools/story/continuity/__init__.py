"""What a story says of its people and things, read off prose and cards, and where two statements
cannot both be true.
"""
