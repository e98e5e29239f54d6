"""Upkeep: finds and repairs damage, and deletes unneeded data."""
