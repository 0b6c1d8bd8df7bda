"""Blobs and logs of runs in object storage."""
