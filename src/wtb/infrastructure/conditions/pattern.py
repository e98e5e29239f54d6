"""The cost of a regular expression at each character of a text."""

from __future__ import annotations

import re

_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\s*(\d*)\s*(?:,\s*(\d*)\s*)?\}|.", re.DOTALL)


def unrolled_length(pattern: str) -> int:
    """Return the length of the pattern with its counted repetitions written out, groups included.

    The engine never goes back in a text, so its time is at most this length times the length of the text: a short
    pattern is slow only if it has counts within counts, as in `(a.{1,200}){1,20}`.
    """
    lengths, last = [0], 0
    for piece in _PIECE.finditer(pattern):
        if piece[0] == "(":
            lengths.append(0)
        elif piece[0] == ")" and len(lengths) > 1:
            last = lengths.pop()
            lengths[-1] += last
        elif piece[1] is not None:
            count = max(int(piece[1] or 0), int(piece[2] or 0), 1)
            lengths[-1] += last * (count - 1)
            last *= count
        else:
            lengths[-1] += 1
            # `*`, `+`, `?` and white space may come between a piece and its count.
            last = last if piece[0] in "*+?" or piece[0].isspace() else 1
    return sum(lengths)
