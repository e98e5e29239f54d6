"""Upkeep: find what is damaged, delete what nobody needs."""
