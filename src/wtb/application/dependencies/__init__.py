"""Finds what a result depends on: code and values that can be inspected, and what a run was seen to read."""
