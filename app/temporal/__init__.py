"""The engine on Temporal, the only importer of `temporalio`: Temporal schedules, the journal remembers."""
