"""An inventory of a shop."""
