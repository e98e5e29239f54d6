"""Alignment: finds which parts of two sequences correspond, in nearly linear time, and compares texts by line."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from operator import eq
from typing import Any, NamedTuple, TypeVar

_SHORT = 200
"""Sequences up to this length get the best alignment, whose time grows at least with the square of the length."""
_CONTEXT = 3
"""Lines that are shown around a change."""

_NO_NEWLINE = "\n\\ No newline at end of file"

Item = TypeVar("Item")


class Block(NamedTuple):
    """Items that correspond: equal ones, or items of `old` that those of `new` have replaced."""

    equal: bool
    old: range
    new: range


def ends(old: Sequence[Item], new: Sequence[Item], same: Callable[[Item, Item], bool] = eq) -> tuple[int, int]:
    """Return how many items are the same in both at the beginning, and how many of the rest at the end."""
    shorter = min(len(old), len(new))
    first = next((index for index in range(shorter) if not same(old[index], new[index])), shorter)
    rest = shorter - first
    last = next((index for index in range(rest) if not same(old[-1 - index], new[-1 - index])), rest)
    return first, last


def align(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Block]:
    """Return blocks that cover both sequences in order, with equal and different blocks in turn.

    Between the common beginning and end, items that occur exactly once in each sequence serve as anchors. A short
    stretch between anchors gets the best alignment; a long stretch without an anchor becomes one block.
    """
    first, last = ends(old, new)
    stop, new_stop = len(old) - last, len(new) - last
    matches = [(0, 0, first)]
    anchors = [(first, first), *_anchors(old, new, range(first, stop), range(first, new_stop)), (stop, new_stop)]
    for (i, j), (next_i, next_j) in pairwise(anchors):
        matches += _matches(old, new, range(i, next_i), range(j, next_j))
    matches.append((stop, new_stop, last))
    return list(_blocks(matches, len(old), len(new)))


def _anchors(old: Sequence[Hashable], new: Sequence[Hashable], mine: range, theirs: range) -> list[tuple[int, int]]:
    """Return the longest series of items that occur once in each sequence and in the same order in both."""
    if max(len(mine), len(theirs)) <= _SHORT:
        return []
    counts = Counter(old[i] for i in mine), Counter(new[j] for j in theirs)
    places = {new[j]: j for j in theirs if counts[1][new[j]] == 1}
    return _longest_rising([(i, places[old[i]]) for i in mine if counts[0][old[i]] == 1 and old[i] in places])


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest series of pairs in which both numbers rise."""
    tops: list[int] = []
    last: list[int] = []
    before: list[int | None] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(tops, place)
        tops[length : length + 1] = [place]
        last[length : length + 1] = [index]
        before.append(last[length - 1] if length else None)
    line: list[tuple[int, int]] = []
    at = last[-1] if last else None
    while at is not None:
        line.append(pairs[at])
        at = before[at]
    return line[::-1]


def _matches(
    old: Sequence[Hashable], new: Sequence[Hashable], mine: range, theirs: range
) -> Iterator[tuple[int, int, int]]:
    """Yield equal stretches as (place in old, place in new, length); always find a common beginning."""
    part, other = [old[i] for i in mine], [new[j] for j in theirs]
    if max(len(part), len(other)) <= _SHORT:
        found = SequenceMatcher(None, part, other, autojunk=False).get_matching_blocks()
        yield from ((mine.start + i, theirs.start + j, size) for i, j, size in found)
    else:
        first, last = ends(part, other)
        yield from ((mine.start, theirs.start, first), (mine.stop - last, theirs.stop - last, last))


def _blocks(matches: Sequence[tuple[int, int, int]], old_length: int, new_length: int) -> Iterator[Block]:
    at, new_at = 0, 0
    open_old, open_new = 0, 0  # the start of the equal block, which may still grow
    for i, j, size in [*(match for match in matches if match[2]), (old_length, new_length, 0)]:
        if (i, j) != (at, new_at) or not size:
            if at > open_old:
                yield Block(True, range(open_old, at), range(open_new, new_at))
            if (i, j) != (at, new_at):
                yield Block(False, range(at, i), range(new_at, j))
            open_old, open_new = i, j
        at, new_at = i + size, j + size


def unified(old: str, new: str) -> list[str]:
    """Return the differences between two texts as the lines of a unified diff's hunks."""
    before, after = _lines(old), _lines(new)
    matcher: SequenceMatcher[Any] = SequenceMatcher(None, (), ())
    # difflib only groups the lines into hunks: its own alignment can take the square of the length.
    matcher.opcodes = [  # type: ignore[attr-defined]
        ("equal" if block.equal else "replace", block.old.start, block.old.stop, block.new.start, block.new.stop)
        for block in align(before, after)
    ]
    lines: list[str] = []
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        lines.append(f"@@ -{_span(group[0][1], group[-1][2])} +{_span(group[0][3], group[-1][4])} @@")
        for tag, i, i_stop, j, j_stop in group:
            if tag == "equal":
                lines += [f" {line}" for line in before[i:i_stop]]
            else:
                lines += [f"-{line}" for line in before[i:i_stop]]
                lines += [f"+{line}" for line in after[j:j_stop]]
    return [part for line in lines for part in line.split("\n")]


def _lines(text: str) -> list[str]:
    """Return the lines of a text without line ends; a last line without one differs from the same line with one."""
    lines = text.split("\n")
    if lines[-1]:
        lines[-1] += _NO_NEWLINE
        return lines
    return lines[:-1]


def _span(start: int, stop: int) -> str:
    if stop - start == 1:
        return str(start + 1)
    return f"{start + 1 if stop > start else start},{stop - start}"
