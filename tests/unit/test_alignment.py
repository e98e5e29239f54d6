"""Alignment: blocks cover both sequences whatever they hold, and unified diffs lead from one text to the other."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtb.domain.alignment import align, unified

SHORT = st.lists(st.sampled_from("abc"), max_size=12)
# Longer than what is aligned in full, so that anchors and long stretches without one are met.
LONG = st.builds(
    lambda numbers, gap, tail: [*numbers, *["-"] * gap, *tail],
    st.lists(st.integers(0, 400), min_size=150, max_size=300),
    st.sampled_from([0, 300]),
    st.lists(st.integers(0, 50), max_size=20),
)


@given(st.one_of(st.tuples(SHORT, SHORT), st.tuples(LONG, LONG)))
def test_blocks_cover_both_sequences_in_order_equal_and_other_ones_in_turn(pair: tuple[list[str], list[str]]) -> None:
    old, new = pair
    blocks = align(old, new)
    assert [index for block in blocks for index in block.old] == list(range(len(old)))
    assert [index for block in blocks for index in block.new] == list(range(len(new)))
    assert all(block.old or block.new for block in blocks)
    assert all(one.equal != other.equal for one, other in pairwise(blocks))
    for block in blocks:
        if block.equal:
            assert [old[i] for i in block.old] == [new[j] for j in block.new]


def test_equal_sequences_are_one_block() -> None:
    (block,) = align(list("abc") * 200, list("abc") * 200)
    assert block.equal
    assert align([], []) == []


def test_a_change_at_each_end_of_a_long_sequence_leaves_the_middle_equal() -> None:
    middle = list(range(10_000))
    assert [(block.equal, len(block.old), len(block.new)) for block in align([-1, *middle, -2], [-3, *middle])] == [
        (False, 1, 1),
        (True, 10_000, 10_000),
        (False, 1, 0),
    ]


def test_every_second_line_of_a_long_text_can_differ() -> None:
    old = [f"line {number}" for number in range(20_000)]
    new = [f"{line}!" if number % 2 else line for number, line in enumerate(old)]
    assert sum(block.equal for block in align(old, new)) == 10_000


TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "\n", "c", "\r\n", "- x\n", "\u2028", "@@\n"]), max_size=25).map(
    "".join
)


@given(TEXTS, TEXTS)
def test_a_unified_diff_leads_from_one_text_to_the_other(old: str, new: str) -> None:
    lines = unified(old, new)
    assert bool(lines) == (old != new)
    assert _patched(old, lines) == new


def test_a_unified_diff_looks_as_people_know_it() -> None:
    old = "".join(f"{number}\n" for number in range(10))
    assert unified(old, old.replace("5\n", "five\n").removesuffix("\n")) == [
        "@@ -3,8 +3,8 @@",
        " 2",
        " 3",
        " 4",
        "-5",
        "+five",
        " 6",
        " 7",
        " 8",
        "-9",
        "+9",
        "\\ No newline at end of file",
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "a\n", ["@@ -0,0 +1 @@", "+a"]),
        ("a\nb\n", "", ["@@ -1,2 +0,0 @@", "-a", "-b"]),
        ("a\n", "a\n", []),
    ],
)
def test_what_is_empty_is_written_as_in_other_tools(old: str, new: str, expected: list[str]) -> None:
    assert unified(old, new) == expected


def _patched(old: str, lines: list[str]) -> str:
    """Apply a unified diff as any tool does."""
    source = old.split("\n")
    whole_lines = source[:-1] if not source[-1] else source
    result: list[str] = []
    at, kind, ends_with_newline = 0, "", old.endswith("\n") or not old
    for line in lines:
        if header := re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@", line):
            start = int(header[1]) - (header[2] != "0")
            result += whole_lines[at:start]
            at = start
        elif line.startswith("\\"):
            ends_with_newline = kind == "-"
        else:
            kind = line[0]
            if kind in " -":
                assert whole_lines[at] == line[1:]
                at += 1
            if kind in " +":
                result.append(line[1:])
                ends_with_newline = True
    rest = whole_lines[at:]
    if rest:
        ends_with_newline = old.endswith("\n")
    result += rest
    return "".join(f"{line}\n" for line in result).removesuffix("" if ends_with_newline or not result else "\n")
