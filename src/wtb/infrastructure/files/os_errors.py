"""Turns errors of the operating system into ours, in one place."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from wtb.domain.errors import StorageError

_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space and try again",
    errno.EDQUOT: "the quota is used up: free some space and try again",
    errno.EROFS: "the file system is read-only: choose another folder, or mount it for writing",
    errno.EACCES: "give this user access to it",
    errno.EPERM: "it belongs to another user, or is marked as immutable: give this user access to it",
    errno.ELOOP: "there is a link where a folder must be: remove it",
    errno.ENOTDIR: "there is a file where a folder must be: remove it",
    errno.ENAMETOOLONG: "shorten the name or its path",
    errno.EXDEV: "unmount it, or mount it elsewhere and put a symbolic link in its place",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EIO: "the disk failed: check the system's log",
}


@contextmanager
def reported_as(kind: type[StorageError], what: str) -> Iterator[None]:
    """Raise an error of this kind for an OSError; the message says what it concerns and what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "fix that and try again")
        where = f" ({error.filename!r})" if isinstance(error.filename, str) and error.filename not in what else ""
        raise kind(f"{what}: {error.strerror or error}{where}; {advice}") from error
