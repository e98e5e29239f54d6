"""Implementations of the ports: databases, codecs, the system clock."""
