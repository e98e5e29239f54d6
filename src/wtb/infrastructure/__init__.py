"""Implementations of the ports: databases, codecs, the clock of the machine."""
