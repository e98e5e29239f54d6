"""Upkeep: finds references, damage, and data that nothing refers to any more."""
