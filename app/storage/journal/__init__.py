"""The journals: the chain of lines, the commit log and its recovery."""
