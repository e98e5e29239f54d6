"""Tamper: what a subclass of a suite gives so that damage can be done to what its storage keeps."""

from __future__ import annotations

from collections.abc import Callable

Tamper = Callable[[bytes, bytes], None]
"""Replaces bytes wherever the storage keeps them, in its texts too, and fails when they are nowhere."""
