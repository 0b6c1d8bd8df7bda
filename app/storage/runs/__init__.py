"""Run folders: their creation, logs, projections, repair and removal."""
