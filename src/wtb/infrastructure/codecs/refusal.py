"""NotStorable: the error for a value that cannot be stored, although its type can."""

from __future__ import annotations


class NotStorable(TypeError):
    """A value that cannot be stored, although others of its type can; the message says what to do."""
