"""SqlFileCommitRows: rows of file commits in a table."""

from __future__ import annotations

from wtb.infrastructure.files.commits import FileCommitRow
from wtb.infrastructure.sql.database import Transaction

_FIELDS = ", ".join(FileCommitRow._fields)

_INSERT = f"""
INSERT INTO wtb_file_commits ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET created_at_us = excluded.created_at_us
"""
_CHAIN = f"""
WITH RECURSIVE line (line_id, line_base, depth) AS (
    SELECT id, base_id, 0 FROM wtb_file_commits WHERE id = ?
    UNION ALL
    SELECT c.id, c.base_id, line.depth + 1 FROM line JOIN wtb_file_commits c ON c.id = line.line_base
)
SELECT {_FIELDS} FROM line JOIN wtb_file_commits ON id = line_id ORDER BY depth DESC
"""


class SqlFileCommitRows:
    """Rows inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def insert(self, row: FileCommitRow) -> None:
        self._transaction.run(_INSERT, row)

    def hold(self, commit_id: str) -> bool:
        statement = "SELECT 1 FROM wtb_file_commits WHERE id = ?" + self._transaction.database.lock_suffix
        return self._transaction.row(statement, (commit_id,)) is not None

    def chain(self, commit_id: str) -> list[FileCommitRow]:
        return [FileCommitRow(*row) for row in self._transaction.rows(_CHAIN, (commit_id,))]
