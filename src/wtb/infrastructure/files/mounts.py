"""Mounts: finds file systems that are mounted inside a folder; WTB must neither store nor remove their files."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

_TABLE = Path("/proc/self/mountinfo")
_SPECIAL = re.compile(rb"[ \t\n\\]")
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def check_no_mounts(folder: int) -> None:
    """Raise OSError if something is mounted inside an open folder, even a part of the same file system.

    Without /proc this cannot be known beforehand; then only a different device number reveals a mount.
    """
    place = _place(folder)
    _refuse([point for point in _mount_points_near(place) if point.startswith(place + b"/")])


def check_not_mounted(folder: int, levels: int) -> None:
    """Raise OSError if an open folder, or one up to `levels` levels above it, is itself a mount point."""
    place = _place(folder)
    way = [place.rsplit(b"/", level)[0] for level in range(levels)]
    _refuse([point for point in _mount_points_near(way[-1]) if point in way])


def _refuse(points: list[bytes]) -> None:
    if points:
        raise OSError(errno.EXDEV, "another file system is mounted there", os.fsdecode(points[0]))


def _place(folder: int) -> bytes:
    try:
        return os.readlink(f"/proc/self/fd/{folder}".encode())
    except OSError:
        return b""


def _mount_points_near(place: bytes) -> list[bytes]:
    """Return the mount points if one may be this place or inside it. Every step asks, so a no must be quick."""
    if not place:
        return []
    try:
        with _TABLE.open("rb", buffering=0) as stream:
            table = stream.readall()
    except OSError:
        return []
    is_near = b" " + _SPECIAL.sub(_escaped, place) in table
    return mount_points(table) if is_near else []


def mount_points(table: bytes) -> list[bytes]:
    """Return the mount points in the kernel's table of mounts."""
    return [_ESCAPED.sub(_character, line.split(b" ", 5)[4]) for line in table.splitlines()]


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"\\%03o" % found[0][0]


def _character(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])
