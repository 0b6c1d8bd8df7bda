"""The index of runs and receipts: the port, its implementations, and its reconciliation with the folders."""
