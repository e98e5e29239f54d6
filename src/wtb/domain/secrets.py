"""Secrets: values that are never shown, and the masker that keeps them out of events, logs and errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import Any, final
from weakref import WeakSet

from wtb.domain.errors import InvalidInput
from wtb.domain.execution import Failure

MASK = "***"

SECRET_KEYS = (
    "password",
    "passwd",
    "secret",
    "token",
    "api_key",
    "apikey",
    "access_key",
    "private_key",
    "authorization",
    "credentials",
)
"""Keys whose values are masked, alone or at the end of a longer one: OPENAI_API_KEY, db-password."""

SECRET_PATTERNS = (
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\bBearer\s+[A-Za-z0-9._~+/=-]{8,}",
    r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)",
)
"""Texts that are masked wherever they stand: keys of well-known services, and passwords in addresses."""


@final
class Secret:
    """A text that prints as `***`, and is masked wherever text of a run is kept; `reveal()` gives it.

    It is never stored: as an argument of a tool it is recorded masked, and a state that holds one is refused.
    """

    __slots__ = ("__weakref__", "_value")

    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            raise InvalidInput(f"a secret is a text, not a {type(value).__name__}")
        self._value = value
        _LIVING.add(self)

    def reveal(self) -> str:
        """Return the text itself."""
        return self._value

    def __repr__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))


_LIVING: WeakSet[Secret] = WeakSet()


class Masker:
    """Takes secrets out of texts and data: living `Secret` values, texts that fit a pattern, values of secret keys."""

    def __init__(self, keys: Collection[str] = SECRET_KEYS, patterns: Collection[str] = SECRET_PATTERNS) -> None:
        names = "|".join(re.escape(key).replace("_", "[_-]?") for key in keys) or r"(?!)"
        self._key = re.compile(rf"(?:^|[_\W])(?:{names})$", re.IGNORECASE)
        written = rf"""((?:\b|_)(?:{names})["']?\s*[:=]\s*)(?:"[^"\n]*"|'[^'\n]*'|[^\s"',;)}}\]]+)"""
        self._written = re.compile(written, re.IGNORECASE)
        self._patterns = [_compiled(pattern) for pattern in patterns]

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in tuple(_LIVING):
            if secret.reveal():
                text = text.replace(secret.reveal(), MASK)
        for pattern in self._patterns:
            text = pattern.sub(MASK, text)
        return self._written.sub(rf"\1{MASK}", text)

    def data(self, value: Any) -> Any:
        """Return plain data without secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Secret):
            return MASK
        if isinstance(value, Mapping):
            return {key: MASK if self.is_secret_key(key) else self.data(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(item) for item in value]
        return value

    def is_secret_key(self, key: Any) -> bool:
        """Whether a key names something whose value is never shown."""
        return isinstance(key, str) and self._key.search(key) is not None

    def failure(self, failure: Failure) -> Failure:
        """Return a failure whose message and traceback hold no secrets."""
        return Failure(
            type=failure.type,
            message=self.text(failure.message),
            traceback=self.text(failure.traceback),
            node=failure.node,
            visit=failure.visit,
            input_checkpoint_id=failure.input_checkpoint_id,
        )

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask a record of a logger that has this masker as a filter."""
        record.msg, record.args = self.text(record.getMessage()), None
        return True


def unrevealed(value: Any) -> Any:
    """Return arguments as they are recorded: with every `Secret` masked."""
    if isinstance(value, Secret):
        return MASK
    if type(value) is dict:
        return {key: unrevealed(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(unrevealed(item) for item in value)
    return value


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidInput(f"secret_patterns: {pattern!r} is no regular expression: {error}") from error
    if compiled.match(""):
        raise InvalidInput(
            f"secret_patterns: {pattern!r} fits an empty text, which is everywhere: let it need a character"
        )
    return compiled
