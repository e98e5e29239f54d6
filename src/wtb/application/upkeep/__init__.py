"""Upkeep: finds damage, and deletes what nobody needs."""
