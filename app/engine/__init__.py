"""The core: operations, records, replay and the runner. No SQL, HTTP, files or processes."""
