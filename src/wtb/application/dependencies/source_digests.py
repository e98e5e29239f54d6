"""SourceDigests: digests of files, folders, modules and variables; each version of a file is read once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from wtb.application.dependencies.own_code import path_of
from wtb.application.dependencies.sources import module_digest
from wtb.domain.observation import ABSENT, EVERY_VARIABLE, ObservedSource, SourceKind

_LARGE = 64 * 1024 * 1024
"""Larger files are compared by size and time of change: hashing them would take longer than most nodes."""
_SESSION = (
    *("_", "COLUMNS", "DBUS_", "DISPLAY", "GPG_", "LINES", "LS_COLORS", "OLDPWD", "PWD", "PYTEST_", "SHLVL"),
    *("SSH_", "STY", "TERM", "TMUX", "VSCODE_", "WAYLAND_", "WINDOWID", "WT_", "XDG_"),
    *("BUILD", "CI", "GITHUB_", "GITLAB_", "HOSTNAME", "INVOCATION_ID", "JENKINS_", "JOURNAL_STREAM", "RUNNER_"),
)
"""The prefixes of variables that differ between two terminals or CI jobs and do not affect results."""
_NOT_LISTED = frozenset((".wtb", "__pycache__"))

Signature = tuple[int, int, int] | None
"""The signature of a file: time of change, size, inode; None if it was absent."""


class SourceDigests:
    """Digests of sources, as they are now or as they were when they were opened."""

    def __init__(self, is_secret: Callable[[str], bool] = lambda name: False) -> None:
        self._is_secret = is_secret
        self._contents: dict[tuple[str, Signature], str] = {}

    def now(self, source: ObservedSource) -> str:
        """Return the current digest of a source."""
        match source.kind:
            case SourceKind.VARIABLE if source.name == EVERY_VARIABLE:
                return _variable_digest(self._all_variables())
            case SourceKind.VARIABLE:
                return _variable_digest(os.environ.get(source.name))
            case SourceKind.FOLDER:
                return _folder_digest(path_of(source.name))
            case SourceKind.MODULE:
                return module_digest(path_of(source.name)) or ABSENT
            case SourceKind.FILE:
                path = str(path_of(source.name))
                return self.of_file(path, signature_of(path))
            case _:
                return ""

    def _all_variables(self) -> str:
        """Return all variables except secrets and those of the terminal and the session."""
        known = sorted((name, value) for name, value in os.environ.items() if not name.startswith(_SESSION))
        return "\0".join(f"{name}={value}" for name, value in known if not self._is_secret(name))

    def of_file(self, path: str, signature: Signature) -> str:
        """Return the digest of a file with this signature; if it has changed since, a digest that matches nothing."""
        if signature is None:
            return ABSENT
        if (path, signature) not in self._contents:
            self._contents[path, signature] = _content_digest(path, signature)
        return self._contents[path, signature]


def signature_of(path: str) -> Signature:
    """Return the current signature of a file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: the name holds a zero byte
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _content_digest(path: str, signature: tuple[int, int, int]) -> str:
    if signature[1] > _LARGE:
        return f"{signature[1]} bytes of {signature[0]}"
    with suppress(OSError), Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
        if signature_of(path) == signature:
            return digest
    return f"changed after it was read, at {signature[0]}"


def _folder_digest(path: Path) -> str:
    try:
        names = sorted(name for name in os.listdir(path) if name not in _NOT_LISTED)
    except OSError:
        return ABSENT
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _variable_digest(value: str | None) -> str:
    if value is None:
        return ABSENT
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()[:32]
