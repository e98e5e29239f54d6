"""Tables in memory: committed rows, and transactions that change them all at once or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

from wtb.domain.errors import InvalidInput

Row = TypeVar("Row")

_GONE: Any = object()


class Table(Generic[Row]):
    """Committed rows by key, and the keys of each group (such as one execution)."""

    def __init__(self, *groups: Callable[[Row], Hashable]) -> None:
        self.rows: dict[Hashable, Row] = {}
        self.groups = groups
        self.keys: list[dict[Hashable, dict[Hashable, None]]] = [{} for _ in groups]

    def put(self, key: Hashable, row: Row) -> None:
        self.drop(key)
        self.rows[key] = row
        for group, keys in zip(self.groups, self.keys, strict=True):
            keys.setdefault(group(row), {})[key] = None

    def drop(self, key: Hashable) -> None:
        row = self.rows.pop(key, _GONE)
        if row is not _GONE:
            for group, keys in zip(self.groups, self.keys, strict=True):
                members = keys[group(row)]
                del members[key]
                if not members:
                    del keys[group(row)]


class Tables:
    """All tables of one storage. Writers take turns; only a transaction itself sees its uncommitted changes."""

    def __init__(self, **tables: Table[Any]) -> None:
        self.tables = tables
        self.writing = threading.Lock()
        self.guard = threading.Lock()
        """Held only while committed rows are replaced or read, so that readers do not wait for transactions."""
        self.readers: set[MemoryTransaction] = set()
        """Each reader gets the rows that a commit replaces, so that it still sees the data as of its beginning."""


class MemoryTransaction:
    """Changes on top of the committed rows, until the commit applies them."""

    def __init__(self, tables: Tables, *, readonly: bool) -> None:
        self._tables = tables
        self._readonly = readonly
        self._changes: dict[str, dict[Hashable, Any]] = {name: {} for name in tables.tables}
        self._open = True
        if readonly:
            with tables.guard:
                tables.readers.add(self)
        else:
            tables.writing.acquire()

    def find(self, table: str, key: Hashable) -> Any | None:
        self._check_open()
        if not self._readonly:
            return self._find(table, key)
        with self._tables.guard:  # never read during a commit; a writer excludes commits anyway
            return self._find(table, key)

    def _find(self, table: str, key: Hashable) -> Any | None:
        row = self._changes[table].get(key)
        if row is None:
            return self._tables.tables[table].rows.get(key)
        return None if row is _GONE else row

    def put(self, table: str, key: Hashable, row: Any) -> None:
        self._check_open()
        self._changes[table][key] = row

    def drop(self, table: str, key: Hashable) -> None:
        self._changes[table][key] = _GONE

    def all(self, table: str) -> Iterator[Any]:
        """Yield every row."""
        yield from (row for _, row in self.items(table))

    def items(self, table: str) -> Iterator[tuple[Any, Any]]:
        """Yield every row with its key."""
        self._check_open()
        with self._tables.guard:
            rows = {**self._tables.tables[table].rows, **self._changes[table]}
        yield from ((key, row) for key, row in rows.items() if row is not _GONE)

    def group(self, table: str, index: int, value: Hashable) -> Iterator[Any]:
        """Yield the rows of one group; `index` is the number of the table's grouping."""
        self._check_open()
        committed, changes = self._tables.tables[table], self._changes[table]
        with self._tables.guard:
            rows = {key: committed.rows[key] for key in committed.keys[index].get(value, ())} | changes
        belongs = committed.groups[index]
        yield from (row for row in rows.values() if row is not _GONE and belongs(row) == value)

    def commit(self) -> None:
        with self._tables.guard:
            for name, changes in self._changes.items():
                table = self._tables.tables[name]
                for key, row in changes.items():
                    for reader in self._tables.readers:
                        reader._changes[name].setdefault(key, table.rows.get(key, _GONE))
                    if row is _GONE:
                        table.drop(key)
                    else:
                        table.put(key, row)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidInput("this unit of work has ended; get another one from the storage")

    def close(self) -> None:
        """Forget uncommitted changes and let the next writer begin."""
        if self._open:
            self._open = False
            if self._readonly:
                with self._tables.guard:
                    self._tables.readers.remove(self)
            else:
                self._tables.writing.release()
