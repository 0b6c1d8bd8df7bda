"""The port to a disk, with the machine's disk and one in memory behind it."""
