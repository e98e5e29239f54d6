"""MemoryFileCommitRows: rows of file commits in a dictionary."""

from __future__ import annotations

from wtb.infrastructure.files.commits import FileCommitRow
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryFileCommitRows:
    """Rows inside one transaction."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def insert(self, row: FileCommitRow) -> None:
        if self._find(row.id) is None:
            self._transaction.put("file_commits", row.id, row)

    def chain(self, commit_id: str) -> list[FileCommitRow]:
        rows: list[FileCommitRow] = []
        found = self._find(commit_id)
        while found is not None:
            rows.append(found)
            found = self._find(found.base_id) if found.base_id else None
        return rows[::-1]

    def _find(self, commit_id: str) -> FileCommitRow | None:
        found: FileCommitRow | None = self._transaction.find("file_commits", commit_id)
        return found
