"""The command line: one small client interface, with a folder in process or a service over HTTP behind it."""
