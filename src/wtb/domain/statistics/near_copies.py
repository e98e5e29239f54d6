"""Near copies: finds cases with almost the same input, which a verdict would count as several."""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.domain.cases import Case

_FEWEST_WORDS = 12
"""Shorter texts are naturally alike: "Where is invoice 7?" is not a copy of "Where is invoice 8?"."""
_MOST_WORDS = 300
_SHINGLE = 3
_ALIKE = 0.5
"""The share of word triples that two texts must have in common."""
_COMMON = 0.5
"""Triples in more than this share of the cases are a template, and say nothing about a case."""
# Two texts that share half of their triples almost certainly share one of their eight smallest hashes.
_SKETCH = 8
_MOST_COMPARED = 5

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NearCopies:
    """How many cases are near copies of others, and two of them."""

    cases: int
    example: tuple[str, str]

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> NearCopies:
        """Read it from plain data."""
        first, second = data["example"]
        return cls(cases=data["cases"], example=(first, second))

    def to_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"cases": self.cases, "example": list(self.example)}


def find_near_copies(cases: Sequence[Case]) -> NearCopies | None:
    """Find inputs with almost the same text, among the cases without a cluster; None if there are none.

    It takes a second or two for 10,000 cases: it reads only the beginnings of texts, and compares only texts that share
    one of their smallest hashes.
    """
    triples = {case.id: _triples(case.input) for case in cases if case.cluster is None}
    counts = Counter(each for own in triples.values() for each in own)
    most = max(2, _COMMON * len(triples))
    telling = {case: {each for each in own if counts[each] <= most} for case, own in triples.items()}
    buckets: dict[int, list[str]] = defaultdict(list)
    copies: dict[str, str] = {}
    for case, own in telling.items():
        if len(own) <= _FEWEST_WORDS - _SHINGLE:
            continue
        for value in sorted(own)[:_SKETCH]:
            for other in buckets[value][:_MOST_COMPARED]:
                if case not in copies and _alike(own, telling[other]):
                    copies[case] = other
            buckets[value].append(case)
    if not copies:
        return None
    case, other = next(iter(copies.items()))
    return NearCopies(cases=len(copies.keys() | set(copies.values())), example=(other, case))


def _alike(own: set[int], other: set[int]) -> bool:
    return len(own & other) >= _ALIKE * len(own | other)


def _triples(given: Any) -> set[int]:
    words = [word for text in _texts(given) for word in _WORD.findall(text[: 12 * _MOST_WORDS].lower())][:_MOST_WORDS]
    return {
        zlib.crc32(" ".join(words[at : at + _SHINGLE]).encode(errors="replace"))
        for at in range(len(words) - _SHINGLE + 1)
    }


def _texts(given: Any) -> Iterator[str]:
    """Yield the texts within an input, in order."""
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping):
        for value in given.values():
            yield from _texts(value)
    elif isinstance(given, list | tuple):
        for value in given:
            yield from _texts(value)
