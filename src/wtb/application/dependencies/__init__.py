"""Finds out what a result depends on: code and values that can be seen, and what a run was observed to read."""
