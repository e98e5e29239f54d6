"""IgnoreRules: the files of a workspace that do not belong to its tree, in the syntax of .gitignore."""

from __future__ import annotations

from wtb.domain.errors import InvalidInput
from wtb.domain.files import RESERVED

IGNORE_FILE = ".wtbignore"
MAX_BYTES = 256 * 1024
"""No rules are this long; a larger file is something else."""


class IgnoreRules:
    """The rules of one file at the root of a workspace; ignored folders are not searched."""

    def __init__(self, text: bytes) -> None:
        from pathspec import GitIgnoreSpec  # takes 20 ms to load, and most workspaces have no rules

        self.text = text
        try:
            self._spec = GitIgnoreSpec.from_lines(text.decode("utf-8", "surrogateescape").splitlines())
        except ValueError as error:
            raise InvalidInput(f"{IGNORE_FILE} holds a pattern that cannot be read: {error}") from error

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether this path is left out."""
        return path == RESERVED or self._spec.match_file(f"{path}/" if folder else path)


class NoRules(IgnoreRules):
    """Only wtb's own files are left out."""

    def __init__(self) -> None:
        """Load nothing."""
        self.text = b""

    def ignores(self, path: str, *, folder: bool) -> bool:
        return path == RESERVED


def rules_of(text: bytes | None) -> IgnoreRules:
    """Return the rules in the content of an ignore file, if there is one."""
    return NoRules() if not text else IgnoreRules(text)
