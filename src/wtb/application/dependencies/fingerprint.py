"""Fingerprint: what a result visibly depends on except the input, part by part.

Each part has a name that a person understands ("`Retriever.search` in app.py") and a digest, so that a later
comparison can name what has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

VERSION = 2
"""The version of the rules that make parts. Parts of different versions cannot be compared."""

CALLED_AS = "it is called as"
"""The part of the function itself: which one it is."""

AS_WRITTEN = " as written"
"""The end of the name of a part that is a statement, or the statements that make a value."""

_IF_LEFT_OUT = "if left out: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What a result depends on, as far as it can be seen before the run.

    `readers` are the user's functions that the node may call: what they read counts, too. `reads_anything` says that it
    may call any function. `coarse` says in words why more counts than the node may need.
    """

    parts: Mapping[str, str]
    values: frozenset[str] = frozenset()
    """The parts that are values and not code."""
    mutable: frozenset[str] = frozenset()
    """The values that a run may change in place: attributes of objects, lists, dictionaries."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Digests of the code that makes values; they count where the value itself is left out."""
    readers: frozenset[str] = frozenset()
    reads_anything: bool = False
    coarse: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """One digest of all parts."""
        return parts_digest(self.parts)

    @property
    def fixed_digest(self) -> str:
        """One digest of all parts that no run can change."""
        return parts_digest({name: part for name, part in self.parts.items() if name not in self.mutable})

    @property
    def mutable_parts(self) -> dict[str, str]:
        """The parts that a run may change; for values that are left out, the code that makes them."""
        left_out = {f"{name}{AS_WRITTEN}": part for name, part in self.written.items() if name not in self.parts}
        return {name: part for name, part in self.parts.items() if name in self.mutable} | left_out

    @property
    def held(self) -> dict[str, str]:
        """The parts that are stored with a result, for a later check that may leave out some values."""
        written = {f"{name}{AS_WRITTEN}": part for name, part in self.written.items()}
        return {name: part for name, part in self.parts.items() if name in self.mutable} | written

    @property
    def all_parts(self) -> dict[str, str]:
        """All parts, with those that count only when a value is left out."""
        return {**self.parts, **{f"{_IF_LEFT_OUT}{name}": part for name, part in self.written.items()}}

    def without(self, names: Iterable[str]) -> Fingerprint:
        """Return the fingerprint without some of its values; the code that makes them counts instead."""
        left_out = self.values & set(names)
        if not left_out:
            return self
        return replace(
            self,
            parts=parts_that_count(self.all_parts, left_out),
            values=self.values - left_out,
            mutable=self.mutable - left_out,
        )


def parts_that_count(parts: Mapping[str, str], left_out: Set[str]) -> dict[str, str]:
    """Return the parts that count if some values are left out."""
    found = {name: part for name, part in parts.items() if name not in left_out and not name.startswith(_IF_LEFT_OUT)}
    instead = {name: parts.get(f"{_IF_LEFT_OUT}{name}") for name in left_out}
    return found | {f"{name}{AS_WRITTEN}": part for name, part in instead.items() if part is not None}


def combined(fingerprints: Mapping[str, Fingerprint], parts: Mapping[str, str]) -> Fingerprint:
    """Return several fingerprints and additional parts as one; each function is labelled with its role."""
    found: dict[str, str] = dict(parts)
    for name, fingerprint in fingerprints.items():
        for part, digest in fingerprint.parts.items():
            label = name if part == CALLED_AS else part
            found[label] = digest if found.get(label, digest) == digest else digest_of((found[label], digest))
    return Fingerprint(
        parts=found,
        values=frozenset().union(*(each.values for each in fingerprints.values())),
        mutable=frozenset().union(*(each.mutable for each in fingerprints.values())),
        written={name: part for each in fingerprints.values() for name, part in each.written.items()},
        readers=frozenset().union(*(each.readers for each in fingerprints.values())),
        reads_anything=any(each.reads_anything for each in fingerprints.values()),
        coarse=tuple(dict.fromkeys(reason for each in fingerprints.values() for reason in each.coarse)),
    )


def parts_digest(parts: Mapping[str, str]) -> str:
    """Return one digest of named parts."""
    return digest_of(f"{name}={part}" for name, part in sorted(parts.items()))


def digest_of(tokens: Iterable[str]) -> str:
    """Return a short digest of texts; their order counts."""
    digest = hashlib.sha256()
    for token in tokens:
        digest.update(token.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:32]
