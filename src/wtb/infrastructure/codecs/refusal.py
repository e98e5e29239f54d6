"""NotStorable: what a type raises when one of its values cannot be stored."""

from __future__ import annotations


class NotStorable(TypeError):
    """A value that cannot be stored, although others of its type can; the message says what to do."""
