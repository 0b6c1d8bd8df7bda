"""The port to a disk, with two implementations: the machine's disk and one in memory."""
