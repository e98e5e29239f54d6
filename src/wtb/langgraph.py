"""The public door to LangGraph: keep its threads here, and look at them as at any other run."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from wtb.bench import Bench
from wtb.domain.errors import InvalidInput

try:
    from wtb.infrastructure.langgraph.saver import StoreSaver
except ImportError as error:
    raise InvalidInput("this needs LangGraph: pip install 'workflow-test-bench[langgraph]'") from error


class Saver(StoreSaver):
    """A checkpointer for LangGraph: `builder.compile(checkpointer=wtb.langgraph.Saver("…"))`.

    Takes an address (memory://, sqlite:///path, postgresql://…), a Bench to share, or nothing for .wtb in this folder.
    """

    def __init__(self, where: str | Bench | None = None, *, serde: Any = None, **settings: Any) -> None:
        self._owned = None if isinstance(where, Bench) else Bench(where, **settings)
        services = (where if isinstance(where, Bench) else self._owned).services  # type: ignore[union-attr]
        super().__init__(services.storage, clock=services.clock, ids=services.ids, serde=serde)

    def close(self) -> None:
        """Give back connections, unless they belong to the bench that was given."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
