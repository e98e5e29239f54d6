"""Chat messages: LangChain's classes are recognised by name and never imported."""

from __future__ import annotations

from typing import Any


def is_message(value: Any) -> bool:
    """Whether a value is a LangChain message."""
    return any(
        kind.__name__ == "BaseMessage" and kind.__module__.startswith("langchain_core.messages")
        for kind in type(value).__mro__
    )
