"""Run folders, journals, blobs, receipts and the index; nothing outside knows where bytes lie."""
