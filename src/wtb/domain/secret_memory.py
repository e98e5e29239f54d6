"""SecretMemory: remembers the texts of all secrets of this process, and the forms in which they may appear."""

from __future__ import annotations

import base64
import html
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

SHORTEST = 4
"""The fewest characters of a text that is searched for; a shorter text appears in half of all words."""

MOST = 1_000
"""The most texts that are remembered; the least recently used one is forgotten first."""

_SHORTEST_BASE64 = 7
"""The fewest characters of a base64 text that are searched for; shorter ones appear in other texts."""

_MOST_NEEDLES = 5
"""The most texts that are searched for in stored data; each costs a search through everything that a step writes."""

_ESCAPE = re.compile("%[0-9A-F]{2}")


class SecretMemory:
    """Remembers texts for the life of the process: an error may be recorded long after its `Secret` is gone.

    Thread-safe: readers get whole tuples, which are replaced and never changed.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._texts: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._lock = threading.Lock()
        self._forms: tuple[str, ...] | None = ()
        self.needles: tuple[bytes, ...] = ()
        """The latest texts, as the bytes that stored data would contain."""

    def add(self, text: str) -> None:
        """Remember a text, or that it was used again."""
        if len(text) < SHORTEST:
            return
        with self._lock:
            if text in self._texts:
                self._texts.move_to_end(text)
                return
            self._texts[text] = forms_of(text)
            if len(self._texts) > self._most:
                self._texts.popitem(last=False)
            self._forms = None
            needle = text.encode("utf-8", "surrogatepass")
            self.needles = (*self.needles, needle)[-_MOST_NEEDLES:]

    @property
    def forms(self) -> tuple[str, ...]:
        """The texts to mask, longest first, because a secret may be part of another one."""
        found = self._forms
        if found is None:
            with self._lock:
                every = {form for forms in self._texts.values() for form in forms}
                found = self._forms = tuple(sorted(every, key=len, reverse=True))
        return found


REMEMBERED = SecretMemory()
"""The secrets of this process."""


def forms_of(text: str) -> tuple[str, ...]:
    """Return a text as it is, and as it appears in addresses, JSON, reprs, HTML and base64."""
    data = text.encode("utf-8", "surrogatepass")
    quoted = [quote(data, safe=""), quote(data), quote_plus(data)]
    lower = [_ESCAPE.sub(lambda found: found[0].lower(), form) for form in quoted]
    written = [json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1], repr(data)[2:-1]]
    nested = [json.dumps(form)[1:-1] for form in written]  # JSON in JSON: errors of services quote the request
    every = [text, *quoted, *lower, *written, *nested, html.escape(text), *_base64_parts(data)]
    return tuple(dict.fromkeys(form for form in every if len(form) >= SHORTEST))


def _base64_parts(data: bytes) -> Iterator[str]:
    """Yield the base64 characters of a text that do not depend on its neighbours, as in `user:password`."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data)
        # A character encodes six bits: characters that include bits of a neighbour are unknown.
        part = encoded[-(-before * 8 // 6) : (before + len(data)) * 8 // 6].decode()
        if len(part) >= _SHORTEST_BASE64:
            yield part
            yield part.replace("+", "-").replace("/", "_")
