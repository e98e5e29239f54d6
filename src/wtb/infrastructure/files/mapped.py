"""Mapped: files that this process has mapped for writing; their times do not always show a change."""

from __future__ import annotations

from pathlib import Path

_TABLE = Path("/proc/self/maps")


def mapped_inodes() -> frozenset[int]:
    """Return the inodes of files that this process has mapped shared and writable; empty if that cannot be known.

    A write to a page that is already dirty sets no time, so a scan must read such a file whatever its times are.
    """
    try:
        with _TABLE.open("rb", buffering=0) as stream:
            table = stream.readall()
    except OSError:
        return frozenset()
    if b" rw-s " not in table and b" rwxs " not in table:
        return frozenset()
    rows = [line.split(None, 5) for line in table.splitlines()]
    return frozenset(int(row[4]) for row in rows if row[1] in (b"rw-s", b"rwxs"))
