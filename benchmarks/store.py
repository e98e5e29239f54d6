"""The store against the same statements by hand, naive JSON snapshots and LangGraph's SqliteSaver.

Everything is measured in one run, peers interleaved, medians unless said otherwise. A step is all that a step is:
checkpoint, branch head, node run, boundary, version and event in one transaction. SQLite is in WAL mode.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

import ormsgpack
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from rich.console import Console

from benchmarks.report import Figure, show, timed
from tests.run_writer import RunWriter
from tests.services import PostgresServer
from wtb.application.runs.steps import Position
from wtb.bootstrap import Services, bootstrap
from wtb.domain.checkpoint import CheckpointDraft
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId
from wtb.domain.state import Append, SetValue, StateDelta
from wtb.infrastructure.checkpoints.encoder import DeltaEncoder
from wtb.infrastructure.checkpoints.manifest import EMPTY
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.database import Database, Transaction
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.settings import Settings, load_settings

STEPS = 1_000
CONSTANT = "c" * 100_000
WORKFLOW = {"name": "bench", "version": "1"}

Statement = tuple[str, Sequence[Any]]


def message(step: int) -> dict[str, Any]:
    """Return 1 KB of conversation."""
    return {"role": "user", "content": f"{step:08d}" * 120, "step": step}


class Writer:
    """A run that grows by one step at a time."""

    def __init__(self, services: Services, state: dict[str, Any]) -> None:
        self.recorder = RunWriter(services.storage, services.clock, services.ids)
        self.at: Position = self.recorder.start(WORKFLOW, state)

    def append(self, step: int) -> None:
        """Append one message."""
        added = [message(step)]
        run = self.recorder.node_run(self.at, "chat", step)
        delta = StateDelta({"messages": (Append(tuple(added)),)})
        self.at = self.recorder.complete(self.at, run, delta, returned={"messages": added}, next_nodes=("chat",))

    def set_small(self, step: int) -> None:
        """Change one small value."""
        run = self.recorder.node_run(self.at, "count", step)
        delta = StateDelta.of(counter=SetValue(step))
        self.at = self.recorder.complete(self.at, run, delta, returned={"counter": step}, next_nodes=("count",))


@contextmanager
def on_sqlite(folder: Path, synchronous: str) -> Iterator[Services]:
    """Open a new database with this durability."""
    settings = load_settings(folder=Path(tempfile.mkdtemp(dir=folder)), sqlite_synchronous=synchronous)
    with bootstrap(settings) as services:
        yield services


@contextmanager
def recorded() -> Iterator[list[Statement]]:
    """Collect the statements that go to the database."""
    statements: list[Statement] = []
    attempt = Transaction._attempt

    def noted(self: Transaction, call: Any, *arguments: Any) -> Any:
        if arguments:  # a commit has none
            statements.append((arguments[0], arguments[1]))
        return attempt(self, call, *arguments)

    Transaction._attempt = noted  # type: ignore[method-assign]
    try:
        yield statements
    finally:
        Transaction._attempt = attempt  # type: ignore[method-assign]


def by_hand(path: Path, synchronous: str) -> sqlite3.Connection:
    """Open a database with the same tables for statements by hand."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return connection


def database_of(services: Services) -> Database:
    """Return the database under the storage."""
    assert isinstance(services.storage, SqlStorage)
    return services.storage.database


def growth(folder: Path) -> list[Figure]:
    """Append 1 KB to a list 1,000 times beside a constant of 100 KB."""
    with on_sqlite(folder, "NORMAL") as services:
        writer = Writer(services, {"constant": CONSTANT, "messages": []})
        seconds = [timed(writer.append, step) for step in range(1, STEPS + 1)]
        with database_of(services).engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        stored = sum(file.stat().st_size for file in services.settings.folder.iterdir())
        early, late = mean(seconds[100:200]) * 1e6, mean(seconds[900:]) * 1e6
        infos = median(timed(read_infos, services, writer.at) for _ in range(20))
        load, hand = load_against_hand(services, writer.at)
    naive = naive_bytes(folder)
    return [
        Figure(
            name="growth: mean of steps 900–1,000 ÷ steps 100–200",
            value=late / early,
            unit="×",
            bar=1.25,
            detail=f"{early:.0f} and {late:.0f} µs, p99 {quantiles(seconds, n=100)[98] * 1e6:.0f} µs, NORMAL",
            raw={"early_us": early, "late_us": late, "p99_us": quantiles(seconds, n=100)[98] * 1e6},
        ),
        Figure(
            name="stored after 1,000 steps",
            value=stored / 1e6,
            unit="MB",
            bar=6,
            detail=f"naive JSON snapshots: {naive / 1e6:,.0f} MB",
            raw={"naive_bytes": naive},
        ),
        Figure(name="infos of 1,000 checkpoints, SQLite", value=infos * 1e3, unit="ms", bar=10),
        Figure(
            name="load state at step 1,000 ÷ read + hash + decode of the same bytes",
            value=load / hand,
            unit="×",
            bar=2,
            detail=f"{load * 1e3:.2f} and {hand * 1e3:.2f} ms",
            raw={"load_ms": load * 1e3, "hand_ms": hand * 1e3},
        ),
    ]


def read_infos(services: Services, at: Position) -> None:
    """List the checkpoints without their states."""
    with services.storage.unit_of_work(readonly=True) as uow:
        uow.checkpoints.list_infos(at.execution.id)


def load(services: Services, at: Position) -> None:
    """Load the state at the head."""
    with services.storage.unit_of_work(readonly=True) as uow:
        uow.checkpoints.load(at.head.id)


def load_against_hand(services: Services, at: Position) -> tuple[float, float]:
    """Load, and do by hand what cannot be avoided: the same SELECTs, a hash and a decoding of all bytes."""
    with recorded() as statements:
        load(services, at)
    reads = [(statement, values) for statement, values in statements if "SELECT" in statement]
    connection = by_hand(services.settings.folder / "wtb.db", "NORMAL")
    ours, theirs = [], []
    for _ in range(30):
        ours.append(timed(load, services, at))
        theirs.append(timed(read_by_hand, connection, reads))
    connection.close()
    return median(ours), median(theirs)


def read_by_hand(connection: sqlite3.Connection, reads: list[Statement]) -> None:
    """Read, hash and decode each stored piece once."""
    for statement, values in reads:
        for row in connection.execute(statement, values).fetchall():
            data = row[-1] or row[-2]  # the keyframe of a link where there is one, otherwise its payload
            hashlib.sha256(data).digest()
            ormsgpack.unpackb(data if "wtb_blobs" in statement else data[16:])


def naive_bytes(folder: Path) -> int:
    """Return the size of 1,000 JSON snapshots."""
    state: dict[str, Any] = {"constant": CONSTANT, "messages": []}
    total = 0
    for step in range(1, STEPS + 1):
        state["messages"].append(message(step))
        total += len(json.dumps(state))
    return total


def small_change(folder: Path, synchronous: str, bar: float) -> list[Figure]:
    """Change one small value, and send the same statements by hand to a second database, in turns."""
    with on_sqlite(folder, synchronous) as services:
        hand_path = Path(tempfile.mkdtemp(dir=folder)) / "hand.db"
        with recorded() as statements:
            writer = Writer(services, {"constant": CONSTANT, "counter": 0})
        hand = by_hand(hand_path, synchronous)
        for line in tables_of(services):
            hand.execute(line)
        replay(hand, statements)
        ours, theirs = [], []
        for step in range(1, 1_001):
            with recorded() as statements:
                ours.append(timed(writer.set_small, step))
            theirs.append(timed(replay, hand, statements))
        hand.close()
    mine, other = median(ours) * 1e6, median(theirs) * 1e6
    return [
        Figure(
            name=f"small change ÷ the same statements by hand, {synchronous}",
            value=mine / other,
            unit="×",
            bar=bar,
            detail=f"{mine:.0f} and {other:.0f} µs",
            raw={"wtb_us": mine, "hand_us": other},
        )
    ]


def tables_of(services: Services) -> list[str]:
    """Return the statements that make the tables."""
    query = "SELECT sql FROM sqlite_master WHERE name LIKE 'wtb_%' AND sql IS NOT NULL"
    with database_of(services).engine.connect() as connection:
        return [row[0] for row in connection.exec_driver_sql(query)]


def replay(connection: sqlite3.Connection, statements: list[Statement]) -> None:
    """Execute statements as they were recorded, and commit where they did."""
    for statement, values in statements:
        if statement.startswith("BEGIN") and connection.in_transaction:
            connection.execute("COMMIT")
        cursor = connection.execute(statement, values)
        if "SELECT" in statement or "RETURNING" in statement:
            cursor.fetchone()
    connection.execute("COMMIT")


def against_saver(folder: Path, synchronous: str) -> list[Figure]:
    """One more message at step 1,000: a step of ours, and a put of LangGraph's saver."""
    with on_sqlite(folder, synchronous) as services:
        writer = Writer(services, {"constant": CONSTANT, "messages": []})
        for step in range(1, STEPS + 1):
            writer.append(step)
        connection = sqlite3.connect(Path(tempfile.mkdtemp(dir=folder)) / "saver.db", check_same_thread=False)
        saver = SqliteSaver(connection)
        saver.setup()
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        values = {"constant": CONSTANT, "messages": [message(step) for step in range(STEPS)]}
        ours, theirs = [], []
        for step in range(STEPS, STEPS + 100):
            ours.append(timed(writer.append, step))
            values["messages"].append(message(step))  # type: ignore[attr-defined]
            theirs.append(timed(put, saver, values, step))
        connection.close()
    mine, other = median(ours) * 1e6, median(theirs) * 1e6
    return [
        Figure(
            name=f"append at step 1,000 ÷ SqliteSaver.put, {synchronous}",
            value=mine / other,
            unit="×",
            bar=0.1,
            detail=f"{mine:.0f} and {other:.0f} µs",
            raw={"wtb_us": mine, "saver_us": other},
        )
    ]


def put(saver: SqliteSaver, values: dict[str, Any], step: int) -> None:
    """Save a LangGraph checkpoint with these channel values."""
    checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": {"messages": step}}
    config = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}
    saver.put(config, checkpoint, {"source": "loop", "step": step, "parents": {}}, {"messages": step})


def forks(folder: Path) -> list[Figure]:
    """Fork states of 1 KB to 10 MB, and 100 times in a row from one point below a keyframe."""
    medians = {}
    for size in (1_000, 100_000, 10_000_000):
        with on_sqlite(folder, "NORMAL") as services:
            writer = Writer(services, {"value": "v" * size, "messages": []})
            for step in range(1, 20):
                writer.append(step)
            medians[size] = fork_often(writer, first_step=False)
    with on_sqlite(folder, "NORMAL") as services:
        writer = Writer(services, {"value": "v" * 10_000_000, "messages": []})
        for step in range(1, 20):
            writer.append(step)
        with_step = fork_often(writer, first_step=True)
    slowest, largest = max(medians.values()), medians[10_000_000] / min(medians.values())
    detail = ", ".join(f"{size / 1e3:g} KB: {seconds * 1e3:.2f}" for size, seconds in medians.items())
    return [
        Figure(name="fork, 100 in a row below a keyframe", value=slowest * 1e3, unit="ms", bar=1, detail=detail),
        Figure(name="fork of 10 MB ÷ fork of 1 KB", value=largest, unit="×", bar=1.5, detail="flat"),
        Figure(
            name="fork and its first step, 10 MB",
            value=with_step * 1e3,
            unit="ms",
            bar=2,
            detail="a bar of our own: the step after the fork must not pay for it either",
        ),
    ]


def fork_often(writer: Writer, *, first_step: bool) -> float:
    """Return the median time of 100 forks from the same checkpoint."""
    origin, seconds = writer.at.head.id, []
    for number in range(100):

        def fork(number: int = number) -> None:
            writer.at = writer.recorder.fork(writer.at, origin, f"fork-{number}")
            if first_step:
                writer.append(number)

        seconds.append(timed(fork))
    return median(seconds)


def absolute(folder: Path) -> list[Figure]:
    """The bars in absolute time: serialise, and save on SQLite and Postgres."""
    codec = MsgpackCodec()
    state = {"messages": [message(step) for step in range(100)]}
    serialise = median(timed(codec.encode, state, "state") for _ in range(200))
    with on_sqlite(folder, "NORMAL") as services:
        sqlite = save_hundred_kb(services)
    with PostgresServer(fsync=True, parent=folder) as server:
        settings = Settings(url=server.create_database("bench"))
        upgrade(settings)
        with bootstrap(settings) as services:
            postgres = save_hundred_kb(services)
    return [
        Figure(name="serialise 100 KB", value=serialise * 1e3, unit="ms", bar=1, detail="kept and canonical"),
        Figure(name="save a new 100 KB, SQLite", value=sqlite * 1e3, unit="ms", bar=1, detail="a step, NORMAL"),
        Figure(name="save a new 100 KB, Postgres", value=postgres * 1e3, unit="ms", bar=10, detail="a step, fsync on"),
    ]


def upgrade(settings: Settings) -> None:
    """Make the tables."""
    from wtb.storage_bootstrap import open_database

    database = open_database(settings)
    schema.upgrade(database)
    database.close()


def save_hundred_kb(services: Services) -> float:
    """Return the median time of steps that set a new value of 100 KB."""
    writer = Writer(services, {"value": ""})
    seconds = []
    for step in range(1, 101):
        value = {"value": f"{step:08d}" * 12_500}
        run = writer.recorder.node_run(writer.at, "set", step)

        def save(run: Any = run, value: dict[str, Any] = value) -> None:
            writer.at = writer.recorder.complete(writer.at, run, StateDelta.setting(value), returned=value)

        seconds.append(timed(save))
    return median(seconds)


def memory() -> list[Figure]:
    """Save 10 KB in memory: the store alone, then with encoding and hashing."""
    with bootstrap(load_settings(preset="testing")) as services:
        assert isinstance(services.storage, MemoryStorage)
        encoder, execution = DeltaEncoder(services.codec), ExecutionId("bench")
        stored, whole = [], []
        with services.storage.unit_of_work() as uow:
            for step in range(2_000):
                draft = CheckpointDraft(
                    id=CheckpointId(services.ids.new()),
                    execution_id=execution,
                    branch_id=BranchId("main"),
                    parent_id=None,
                    step=step,
                    node="node",
                    created_at=services.clock.now(),
                )
                delta = StateDelta.setting({"value": f"{step:08d}" * 1_250})
                if step % 2:
                    whole.append(timed(uow.checkpoints.save, draft, delta))
                else:
                    encoded = encoder.encode(EMPTY, delta, None, lambda addresses: {})
                    stored.append(timed(uow.checkpoints.write, draft, b"", EMPTY, encoded))
    return [
        Figure(name="memory save of 10 KB, already encoded", value=median(stored) * 1e6, unit="µs", bar=10),
        Figure(name="memory save of 10 KB, with encoding and hashing", value=median(whole) * 1e6, unit="µs", bar=60),
    ]


def main() -> None:
    """Measure everything; say what is being measured meanwhile."""
    console = Console()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="wtb-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres runs as another user and has to pass through
        for label, measure, *arguments in (
            ("growth over 1,000 steps", growth, folder),
            ("small change, NORMAL", small_change, folder, "NORMAL", 2.5),
            ("small change, FULL", small_change, folder, "FULL", 1.3),
            ("LangGraph's saver, NORMAL", against_saver, folder, "NORMAL"),
            ("LangGraph's saver, FULL", against_saver, folder, "FULL"),
            ("forks", forks, folder),
            ("absolute times", absolute, folder),
            ("memory", memory),
        ):
            with console.status(str(label)):
                figures += measure(*arguments)
    show("The checkpoint store", figures, Path("build/benchmarks/store.json"))


if __name__ == "__main__":
    main()
