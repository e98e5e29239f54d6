"""Upkeep: what is referred to by whom, what is damaged, and what nothing refers to any more."""
