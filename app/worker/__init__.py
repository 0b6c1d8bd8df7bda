"""The embedded engine: a pool of runs in one asyncio process over one run store."""
