"""json_stdout: keeps the standard output for JSON, whatever nodes and the programs that they start print."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO

_STDOUT, _STDERR = 1, 2


@contextmanager
def json_stdout() -> Iterator[TextIO | None]:
    """Yield the standard output; all others that print there reach stderr meanwhile.

    A program that a node starts inherits the file descriptor and knows nothing of `sys.stdout`, so both are changed.
    """
    own = sys.stdout
    with redirect_stdout(sys.stderr):
        if own is None or not _is_descriptor(own):
            yield own
            return
        own.flush()
        kept = os.dup(_STDOUT)
        os.dup2(_STDERR, _STDOUT)
        file = os.fdopen(kept, "w", encoding=own.encoding, errors=own.errors)
        try:
            yield file
        finally:
            os.dup2(kept, _STDOUT)
            with suppress(OSError):  # whoever wrote has flushed, and was told if that failed
                file.close()


def _is_descriptor(file: TextIO) -> bool:
    """Whether a file is the descriptor that programs inherit; in a test it may be a buffer."""
    with suppress(OSError, ValueError):
        os.fstat(_STDERR)
        return file.fileno() == _STDOUT
    return False
