"""Inputs, expected values and outputs as text that people can read: masked, and cut if it is very long."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from wtb.domain.messages import is_message
from wtb.domain.secrets import MASK, Masker, Secret
from wtb.domain.values import Legible

MOST_CHARACTERS = 4_000
"""The length at which a text is cut; ten thousand texts of this length load in a second."""
_SEARCHED = 10 * MOST_CHARACTERS
"""The length that is searched for secrets: more than is kept, so that no secret is cut in half."""
_DEPTH = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutput:
    """The output of a job as text, cut if it is long; `size` is the number of characters before the cut."""

    text: str
    size: int
    made_by: str = ""
    """A digest of the rule that reads the output; another rule may read a different output."""
    is_error: bool = False
    """Whether the text says why there is no output."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was cut."""
        return len(self.text) >= self.size

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> JobOutput:
        """Read it from plain JSON."""
        return cls(**data)


def output_of(value: Any, masker: Masker, made_by: str = "") -> JobOutput:
    """Return a value as the output of a job."""
    whole = legible_text(value, masker)
    masked = masker.text(whole[:_SEARCHED])
    size = len(masked) if len(whole) <= _SEARCHED else len(whole)
    return JobOutput(text=masked[:MOST_CHARACTERS], size=size, made_by=made_by)


def legible_text(value: Any, masker: Masker) -> str:
    """Return a value as a person would write it. Values of secret keys are masked; the caller masks other secrets.

    A text stays as it is. A mapping with one key becomes its value. A mapping with several keys has one line per key,
    and a conversation one line per message.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list | tuple) and value and all(map(_is_spoken, value)):
        return _conversation(value, masker)
    if _is_spoken(value):
        return _spoken(value, masker)[1]
    if isinstance(value, Mapping) and value:
        lines = {str(key): _line(key, item, masker) for key, item in value.items()}
        return next(iter(lines.values())) if len(lines) == 1 else "\n".join(f"{k}: {v}" for k, v in lines.items())
    plain = _plain(value, masker, _DEPTH)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _line(key: Any, value: Any, masker: Masker) -> str:
    if masker.is_secret_key(key):
        return MASK
    if isinstance(value, Mapping):
        return json.dumps(_plain(value, masker, _DEPTH), ensure_ascii=False)
    return legible_text(value, masker)


def _is_spoken(value: Any) -> bool:
    return is_message(value) or (isinstance(value, Mapping) and {"role", "content"} <= value.keys())


def _conversation(messages: Sequence[Any], masker: Masker) -> str:
    said = [_spoken(message, masker) for message in messages]
    return said[0][1] if len(said) == 1 else "\n".join(f"{who}: {what}" for who, what in said)


def _spoken(message: Any, masker: Masker) -> tuple[str, str]:
    """Return the speaker and the text of a message."""
    who, what = (message["role"], message["content"]) if isinstance(message, Mapping) else _parts(message)
    if isinstance(what, list) and what and all(isinstance(block, str | Mapping) for block in what):
        what = "".join(block if isinstance(block, str) else str(block.get("text", "")) for block in what)
    return str(who), legible_text(what, masker)


def _parts(message: Any) -> tuple[str, Any]:
    return message.type, message.content


def _plain(value: Any, masker: Masker, depth: int) -> Any:
    """Return a value as plain data; do not call methods of unknown objects, which may be slow or have effects."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Secret):
        return MASK
    if _is_spoken(value):
        return _spoken(value, masker)[1]
    if isinstance(value, Legible):
        value = value.legible()
    return _container(value, masker, depth - 1) if depth else f"<{type(value).__name__}>"


def _container(value: Any, masker: Masker, depth: int) -> Any:
    if isinstance(value, Mapping):
        return {
            str(key): MASK if masker.is_secret_key(key) else _plain(item, masker, depth) for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, masker, depth) for item in value]
    return value if isinstance(value, str | int | float) else f"<{type(value).__name__}>"
