"""Secrets: values that are never shown, and the masker that keeps them out of every text about a run."""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Collection, Mapping
from typing import Any, final

from wtb.domain.errors import InvalidInput
from wtb.domain.execution import Failure
from wtb.domain.secret_memory import REMEMBERED

MASK = "***"

_LONGEST_TEXT = 4_000
_LONGEST_TRACEBACK = 40_000
"""How many characters of an error are kept: a message may hold a whole page or a prompt."""

SECRET_KEYS = (
    "password",
    "passwd",
    "secret",
    "token",
    "api_key",
    "apikey",
    "access_key",
    "private_key",
    "passphrase",
    "authorization",
    "credentials",
)
"""Keys whose values are masked, also as the end of a longer key: OPENAI_API_KEY, db-password."""

SECRET_PATTERNS = (
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}",
    r"\bwtb_[A-Za-z0-9_-]{40,}",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\bBearer\s+[A-Za-z0-9._~+/=-]{8,}",
    r"(?<=://)(?![^\s/:@]*:\*{3}@)[^\s/:@\"'<>]*:[^\s/\"'<>]+(?=@)",
)
"""Texts that are masked anywhere: keys of well-known services, and passwords in addresses."""

_HINTS = dict(zip(SECRET_PATTERNS, ("sk-", "gh", "wtb_", "AKIA", "Bearer", "://"), strict=True))
"""A part that a text must contain to fit a pattern; searching for it is a hundred times quicker than the pattern."""


@final
class Secret:
    """A text that prints as `***` and is masked in every text about a run; `reveal()` returns it.

    It is never stored: in the arguments of a tool it is recorded as `***`, and a state that holds one is refused. The
    process remembers the text even after the object is gone. A text of fewer than four characters is not searched for.
    """

    __slots__ = ("__weakref__", "_value")

    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            raise InvalidInput(f"a secret is a text, not a {type(value).__name__}")
        self._value = value
        REMEMBERED.add(value)

    def reveal(self) -> str:
        """Return the text itself."""
        REMEMBERED.add(self._value)  # from now on the text can appear anywhere, even if the memory has forgotten it
        return self._value

    def __repr__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))


_CAMEL = r"(?-i:(?<=[a-z0-9])(?=[A-Z]))"
"""The start of a word inside another, as in clientSecret."""

_SCHEME = r"(?:(?:basic|bearer|digest|token|negotiate)\s+)?"
"""The scheme that may precede the value of an Authorization header."""

_QUOTED = r"""[bru]{0,2}(?P<quote>["'])(?:\\.|(?!(?P=quote))[^\n\\])*(?P=quote)"""
_ESCAPED = r"""(?P<escaped>\\+["'])(?:(?!(?P=escaped))[^\n])*(?P=escaped)"""
_BARE = r"""(?:\\*["'])?[^\s"',;)}\]]+"""
"""The value of a key: in quotes, in the quotes of a JSON text inside another, or bare; an open quote belongs to it."""

_BASIC = re.compile(r"\b(Basic\s+)([A-Za-z0-9+/_-]{4,}={0,2})", re.IGNORECASE)


class Masker:
    """Takes secrets out of texts and data: `Secret` values, texts that fit a pattern, values of secret keys."""

    def __init__(self, keys: Collection[str] = SECRET_KEYS, patterns: Collection[str] = SECRET_PATTERNS) -> None:
        names = "|".join(re.escape(key).replace("_", "[_-]?") for key in keys) or r"(?!)"
        self._key = re.compile(rf"(?:^|[_\W]|{_CAMEL})(?:{names})$", re.IGNORECASE)
        key = rf"""(?:\b|_|{_CAMEL})(?:{names})(?:\\*["'])?\s*[:=]\s*(?!\\*["']?\*{{3}})"""
        self._written = re.compile(rf"(?P<key>{key})(?:{_QUOTED}|{_ESCAPED}|{_SCHEME}{_BARE})", re.IGNORECASE)
        self._patterns = [(_HINTS.get(pattern, ""), _compiled(pattern)) for pattern in patterns]
        self._words = {max(key.lower().split("_"), key=len) for key in keys}

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        for form in REMEMBERED.forms:
            if form in text:
                text = text.replace(form, MASK)
        for hint, pattern in self._patterns:
            if hint in text:
                text = pattern.sub(MASK, text)
        lower = text.lower()
        if "basic" in lower:
            text = _BASIC.sub(_masked_basic, text)
        if (":" in text or "=" in text) and any(word in lower for word in self._words):  # a key and its value
            text = self._written.sub(rf"\g<key>{MASK}", text)
        return text

    def data(self, value: Any) -> Any:
        """Return plain data without secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Secret):
            return MASK
        if isinstance(value, Mapping):
            return {
                self.data(key) if isinstance(key, str) else key: MASK if self.is_secret_key(key) else self.data(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.data(item) for item in value]
        return value

    def is_secret_key(self, key: Any) -> bool:
        """Whether the value of this key is never shown."""
        return isinstance(key, str) and self._key.search(key) is not None

    def bounded(self, text: str) -> str:
        """Return a text without secrets, cut after 4,000 characters."""
        masked = self.text(text[: 2 * _LONGEST_TEXT])  # more than is shown, so that no secret is cut in half
        return masked if len(masked) <= _LONGEST_TEXT else f"{masked[: _LONGEST_TEXT - 1]}…"

    def error(self, error: BaseException) -> str:
        """Return the type and the message of an error, without secrets and of limited length."""
        return self.bounded(f"{type(error).__qualname__}: {text_of(error)}")

    def _traceback(self, text: str) -> str:
        """Return a traceback without secrets; of a very long one, its two ends."""
        if len(text) <= _LONGEST_TRACEBACK:
            return self.text(text)
        half = _LONGEST_TRACEBACK // 2
        head, tail = self.text(text[: half + _LONGEST_TEXT]), self.text(text[-half - _LONGEST_TEXT :])
        return f"{head[:half]}\n… {len(text) - 2 * half} characters left out …\n{tail[-half:]}"

    def failure(self, failure: Failure) -> Failure:
        """Return a failure whose message and traceback hold no secrets, and are of limited length."""
        return Failure(
            type=self.text(failure.type),
            message=self.bounded(failure.message),
            traceback=self._traceback(failure.traceback),
            node=failure.node,
            visit=failure.visit,
            input_checkpoint_id=failure.input_checkpoint_id,
        )

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask a record of a logger that has this masker as a filter, with its traceback."""
        record.msg, record.args = self.text(record.getMessage()), None
        if record.exc_info:
            record.exc_text = record.exc_text or logging.Formatter().formatException(record.exc_info)
            record.exc_info = None  # otherwise a handler would format it again, unmasked
        if record.exc_text:
            record.exc_text = self.text(record.exc_text)
        return True


def text_of(error: BaseException) -> str:
    """Return the message of an error; a class of the user's may fail to make one."""
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001
        return f"(its message cannot be made: {type(second).__qualname__})"


def masked_logger(name: str) -> logging.Logger:
    """Return a logger of WTB; its messages about errors and runs are masked for every listener."""
    logger = logging.getLogger(name)
    logger.addFilter(_BUILT_IN)
    return logger


def unrevealed(value: Any) -> Any:
    """Return arguments as they are recorded: with every `Secret` masked."""
    if isinstance(value, Secret):
        return MASK
    if type(value) is dict:
        return {key: unrevealed(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(unrevealed(item) for item in value)
    return value


def _masked_basic(found: re.Match[str]) -> str:
    """Mask the credentials of HTTP's Basic scheme, and no other word: decoded credentials contain a colon."""
    try:
        decoded = base64.b64decode(found[2].replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error:
        return found[0]
    return f"{found[1]}{MASK}" if b":" in decoded else found[0]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidInput(f"secret_patterns: {pattern!r} is not a regular expression: {error}") from error
    if compiled.match(""):
        raise InvalidInput(
            f"secret_patterns: {pattern!r} matches the empty text, which is everywhere; make it need a character"
        )
    return compiled


_BUILT_IN = Masker()
