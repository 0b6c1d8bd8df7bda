"""The embedded engine: executes many runs in one asyncio process over one run store; `engine` executes each."""
