"""Unregistered: a stored object whose class is not registered here, shown as its class name and fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, repr=False)
class Unregistered:
    """An object that is only shown: nothing is imported for it, and no node ever gets one."""

    name: str
    content: Any

    def legible(self) -> Any:
        """Return the name of the class with the fields, or with the data that represents the object."""
        name, content = self.name.replace(":", "."), self.content
        if type(content) is list and len(content) == 4 and type(content[0]) is dict:  # a pydantic model
            content = {**content[0], **(content[1] or {})}
        fields = content if type(content) is dict and all(type(key) is str for key in content) else {"value": content}
        return {"class": name, **fields}

    def __repr__(self) -> str:
        return repr(self.legible())
