"""Run folders, journals, blobs, receipts and the index; no other package knows where bytes are stored."""
