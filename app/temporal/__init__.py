"""The engine on Temporal, the only importer of `temporalio`: Temporal schedules, and the journal is the memory."""
