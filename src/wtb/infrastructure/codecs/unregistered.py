"""Unregistered: a stored object whose class is not registered here, as its name and its fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, repr=False)
class Unregistered:
    """An object that is only looked at: nothing is imported for it, and no node ever gets one."""

    name: str
    content: Any

    def legible(self) -> Any:
        """Return the name of the class beside the fields, or beside the data that stands for the object."""
        name, content = self.name.replace(":", "."), self.content
        if type(content) is list and len(content) == 4 and type(content[0]) is dict:  # a pydantic model
            content = {**content[0], **(content[1] or {})}
        fields = content if type(content) is dict and all(type(key) is str for key in content) else {"value": content}
        return {"class": name, **fields}

    def __repr__(self) -> str:
        return repr(self.legible())
