"""The command line: one small client port, spoken to a folder in process or to a service over HTTP."""
