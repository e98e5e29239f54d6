"""The public door to LangGraph: keep its threads here, and look at them as at any other run."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from wtb.bench import Bench
from wtb.bootstrap import open_database
from wtb.domain.errors import InvalidInput
from wtb.infrastructure.sql import schema
from wtb.settings import load_settings

try:
    from wtb.infrastructure.langgraph.history import history_of as history
    from wtb.infrastructure.langgraph.importing import Imported, import_threads
    from wtb.infrastructure.langgraph.saver import StoreSaver
except ImportError as error:
    raise InvalidInput("this needs LangGraph: pip install 'workflow-test-bench[langgraph]'") from error

__all__ = ["Imported", "Saver", "history", "import_threads"]


class Saver(StoreSaver):
    """A checkpointer for LangGraph: `builder.compile(checkpointer=wtb.langgraph.Saver("…"))`.

    Takes an address (memory://, sqlite:///path, postgresql://…), a Bench to share, or nothing for .wtb in this folder.
    In an empty database it makes its tables. `serde` is a serialiser of your own, such as one that encrypts.
    """

    def __init__(self, where: str | Bench | None = None, *, serde: Any = None, **settings: Any) -> None:
        self._own = None if isinstance(where, Bench) else _opened(where, settings)
        bench = where if isinstance(where, Bench) else self._own
        assert bench is not None
        services = bench.services
        super().__init__(services.storage, clock=services.clock, ids=services.ids, serde=serde)

    def setup(self) -> None:
        """Nothing is left to do; here so that it can take the place of a PostgresSaver."""

    def close(self) -> None:
        """Give back connections, unless they belong to the bench that was given."""
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _opened(url: str | None, settings: dict[str, Any]) -> Bench:
    found = load_settings(url=url, **settings)
    if found.url not in (None, "memory://"):
        database = open_database(found)
        try:
            if schema.current(database) is None:
                schema.upgrade(database)
        finally:
            database.close()
    return Bench(url, **settings)
