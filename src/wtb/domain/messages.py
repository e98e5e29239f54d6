"""Chat messages: LangChain's classes are recognised by name and never imported."""

from __future__ import annotations

from typing import Any


def is_message(value: Any) -> bool:
    """Whether a value is a LangChain message."""
    kind = type(value)
    return kind.__module__ != "builtins" and any(
        base.__name__ == "BaseMessage" and base.__module__.startswith("langchain_core.messages")
        for base in kind.__mro__
    )
