"""Delivery of committed events inside this process."""
