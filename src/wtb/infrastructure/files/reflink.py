"""Reflinks: a copy that shares its bytes on the disk with the original until one of them changes.

XFS and Btrfs can do that. A clone is read and verified like any copy, but takes no space and no writing.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import struct
from typing import BinaryIO

from wtb.infrastructure.files.blocks import BlockStream

CLONE_BYTES = 64 << 10
"""Smaller files are copied: that is as quick, and they are small."""

_FICLONERANGE = 0x4020940D
_RANGE = struct.Struct("qQQQ")
"""The source, the position in it, the length (0: up to its end), and the target position."""
_UNABLE = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.ENOSYS}

_refused: set[tuple[int, int]] = set()
"""Pairs of file systems that refused a clone once; files between them are copied."""


def cloned(stream: BinaryIO, target: int) -> bool:
    """Make an empty file a clone of a whole stream; False if that is impossible, and the file stays empty."""
    if isinstance(stream, BlockStream):
        done = all(_cloned_block(stream, number, target) for number in range(len(stream.blocks.blocks)))
    else:
        done = isinstance(stream, io.FileIO) and _cloned(stream.fileno(), target, 0)
    if not done:
        os.ftruncate(target, 0)
    return done


def _cloned_block(stream: BlockStream, number: int, target: int) -> bool:
    with stream.open_block(number) as block:
        return isinstance(block, io.FileIO) and _cloned(block.fileno(), target, number * stream.blocks.block_bytes)


def _cloned(source: int, target: int, at: int) -> bool:
    pair = (os.fstat(source).st_dev, os.fstat(target).st_dev)
    if pair in _refused:
        return False
    try:
        fcntl.ioctl(target, _FICLONERANGE, _RANGE.pack(source, 0, 0, at))
    except OSError as error:
        if error.errno in _UNABLE:
            _refused.add(pair)
        return False  # whatever the error was, an ordinary copy succeeds or reports it
    return True
