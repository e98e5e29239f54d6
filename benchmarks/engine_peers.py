"""Loops of trivial steps, ours and those of peers: each says when its steps began, and how durable they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol
from uuid import uuid4

from burr.core import ApplicationBuilder, action
from burr.core.persistence import SQLitePersister
from dbos import DBOS

from wtb.application.runs.execution_controller import ExecutionController
from wtb.bootstrap import bootstrap
from wtb.domain.options import RunOptions
from wtb.flow import Workflow
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.settings import load_settings

ROW = b"r" * 200
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


class Peer(Protocol):
    """Something that takes steps and keeps each of them before the next."""

    def run(self, steps: int) -> list[float]:
        """Take steps, and return when each of them began."""
        ...

    def durability(self) -> str:
        """Return what its own connection says of it."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


def durability(query: Callable[[str], Any]) -> str:
    """Return journal and durability of a connection, given how to ask it for one value."""
    return f"{query('PRAGMA journal_mode')}/{SYNCHRONOUS[query('PRAGMA synchronous')]}"


class Connections:
    """Opens the connections of a peer in WAL mode with this durability, and remembers what they were of themselves."""

    def __init__(self, synchronous: str) -> None:
        self._synchronous = synchronous
        self._opened: list[sqlite3.Connection] = []
        self._unchanged = ""

    def __call__(self, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = sqlite3.Connection(*args, **kwargs)
        self._unchanged = self._unchanged or durability(_query(connection))
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        self._opened.append(connection)
        return connection

    def durability(self) -> str:
        """Return what the connections say now, and what the first said before it was changed."""
        now = sorted({durability(_query(connection)) for connection in self._opened})
        return f"{', '.join(now)} (unchanged: {self._unchanged})"


def _query(connection: sqlite3.Connection) -> Callable[[str], Any]:
    return lambda statement: connection.execute(statement).fetchone()[0]


def loop(controller: ExecutionController, steps: int) -> list[float]:
    """Run a node that leads to itself until the limit of steps ends the run."""
    began: list[float] = []

    def count(state: Any) -> dict[str, int]:
        began.append(perf_counter())
        return {"n": state["n"] + 1}

    definition = Workflow("loop").add_node("count", count, start=True).edge("count", "count").definition()
    execution = controller.create(definition, {"n": 0}, RunOptions(max_steps=steps))
    ended = controller.run(execution.id, definition)
    assert ended.failure is not None
    assert ended.failure.type == "StepLimitReached", ended.failure
    return began


class Wtb:
    """Our engine on a database of its own."""

    def __init__(self, folder: Path, synchronous: str) -> None:
        self.services = bootstrap(load_settings(folder=folder / "wtb", sqlite_synchronous=synchronous))

    def run(self, steps: int) -> list[float]:
        return loop(self.services.controller, steps)

    def durability(self) -> str:
        assert isinstance(self.services.storage, SqlStorage)
        transaction = self.services.storage.database.begin(readonly=True)
        try:
            return durability(lambda statement: transaction.rows(statement)[0][0])
        finally:
            transaction.close()

    def close(self) -> None:
        self.services.close()


class RawInserts:
    """One row of 200 bytes and a commit for each step: the least that keeping it takes."""

    def __init__(self, folder: Path, synchronous: str) -> None:
        self._connection = Connections(synchronous)(folder / "raw.db")
        self._connection.execute("CREATE TABLE steps (id INTEGER PRIMARY KEY, data BLOB)")

    def run(self, steps: int) -> list[float]:
        began = []
        for _ in range(steps):
            began.append(perf_counter())
            self._connection.execute("INSERT INTO steps (data) VALUES (?)", (ROW,))
            self._connection.commit()
        return began

    def durability(self) -> str:
        return durability(_query(self._connection))

    def close(self) -> None:
        self._connection.close()


class Dbos:
    """A workflow of DBOS that calls one of its steps again and again."""

    def __init__(self, folder: Path, synchronous: str) -> None:
        self._connections = Connections(synchronous)
        self._began: list[float] = []
        config: Any = {
            "name": "bench",
            "system_database_url": f"sqlite:///{folder / 'dbos.db'}",
            "db_engine_kwargs": {"connect_args": {"factory": self._connections}},
            "console_log_level": "ERROR",
        }
        DBOS(config=config)

        @DBOS.step()  # type: ignore[untyped-decorator]
        def count(state: dict[str, int]) -> dict[str, int]:
            self._began.append(perf_counter())
            return {"n": state["n"] + 1}

        @DBOS.workflow()  # type: ignore[untyped-decorator]
        def count_up(steps: int) -> None:
            state = {"n": 0}
            for _ in range(steps):
                state = count(state)

        self._count_up = count_up
        DBOS.launch()

    def run(self, steps: int) -> list[float]:
        self._began.clear()
        self._count_up(steps)
        return list(self._began)

    def durability(self) -> str:
        return self._connections.durability()

    def close(self) -> None:
        DBOS.destroy(destroy_registry=True)


class Burr:
    """An application of Burr with one action and its SQLitePersister."""

    def __init__(self, folder: Path, synchronous: str) -> None:
        self._connections = Connections(synchronous)
        self._persister = SQLitePersister(str(folder / "burr.db"), connect_kwargs={"factory": self._connections})
        self._persister.initialize()

    def run(self, steps: int) -> list[float]:
        began: list[float] = []

        @action(reads=["n"], writes=["n"])  # type: ignore[untyped-decorator]
        def count(state: Any) -> Any:
            began.append(perf_counter())
            return state.update(n=state["n"] + 1)

        application = (
            ApplicationBuilder()
            .with_actions(count=count)
            .with_transitions(("count", "count"))
            .with_entrypoint("count")
            .with_state(n=0)
            .with_state_persister(self._persister)
            .with_identifiers(app_id=str(uuid4()))
            .build()
        )
        for _ in range(steps):
            application.step()
        return began

    def durability(self) -> str:
        return self._connections.durability()

    def close(self) -> None:
        self._persister.connection.close()
