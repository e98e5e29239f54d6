"""MemoryFileCommitRows: rows of file commits in a dictionary."""

from __future__ import annotations

from wtb.infrastructure.files.commits import FileCommitRow
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryFileCommitRows:
    """Rows inside one transaction."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def insert(self, row: FileCommitRow) -> None:
        kept = self._find(row.id) or row
        self._transaction.put("file_commits", row.id, kept._replace(created_at_us=row.created_at_us))

    def hold(self, commit_id: str) -> bool:
        return self._find(commit_id) is not None

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
