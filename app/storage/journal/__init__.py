"""The journals: the chain of lines, the group commit and its recovery."""
