"""The saver against LangGraph's own: InMemorySaver, SqliteSaver, PostgresSaver, and one that stores nothing.

Everything is measured in one run, savers interleaved, medians. What a saver costs is what a graph takes longer with it
than with the one that stores nothing. Durability is equal in each comparison, and every step waits for its checkpoint
(`durability="sync"`).
"""

from __future__ import annotations

import gc
import operator
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Annotated, Any, TypedDict

import psycopg
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from rich.console import Console

from benchmarks.report import Figure, show
from tests.services import PostgresServer
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.postgres import PostgresDatabase
from wtb.langgraph import Saver

NODES = 20
LOOP = 200
CONSTANT = Random(0).randbytes(50_000).hex()
_threads = count(1)


class NoSaver(BaseCheckpointSaver[int]):
    """Stores nothing: the floor that LangGraph itself needs for having a checkpointer."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        place = config["configurable"]
        return {"configurable": {**place, "checkpoint_id": checkpoint["id"]}}

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        pass

    def get_tuple(self, config: Any) -> None:
        return None


class Plain(TypedDict):
    """A conversation of mappings."""

    constant: str
    messages: Annotated[list[dict[str, Any]], operator.add]


class Chat(TypedDict):
    """A conversation of LangChain's messages."""

    constant: str
    messages: Annotated[list[AnyMessage], add_messages]


def text(step: int) -> str:
    """Return 960 characters that Postgres cannot make much smaller."""
    return Random(step).randbytes(480).hex()


def plain(step: int) -> Any:
    """Return 1 KB of conversation as a mapping."""
    return {"role": "user", "content": text(step), "step": step}


def chat(step: int) -> Any:
    """Return 1 KB of conversation as a message of LangChain."""
    return AIMessage(text(step), id=f"message-{step}")


def chain(schema: Any, message: Callable[[int], Any]) -> StateGraph[Any]:
    """Return a graph of nodes in a row, each of which adds a message."""
    graph = StateGraph(schema)
    for number in range(NODES):
        graph.add_node(f"node{number}", lambda state, number=number: {"messages": [message(number)]})
        graph.add_edge(f"node{number - 1}" if number else START, f"node{number}")
    graph.add_edge(f"node{NODES - 1}", END)
    return graph


def loop(schema: Any, message: Callable[[int], Any], steps: int) -> StateGraph[Any]:
    """Return a graph of one node that adds a message until there are so many."""
    graph = StateGraph(schema)
    graph.add_node("say", lambda state: {"messages": [message(len(state["messages"]))]})
    graph.add_edge(START, "say")
    graph.add_conditional_edges("say", lambda state: END if len(state["messages"]) >= steps else "say")
    return graph


@dataclass
class Peer:
    """A saver under a name, and how many bytes it has stored."""

    name: str
    saver: BaseCheckpointSaver[Any]
    stored: Callable[[], float] = lambda: 0.0
    seconds: list[float] = field(default_factory=list)


def run(
    graph: StateGraph[Any], saver: BaseCheckpointSaver[Any], values: dict[str, Any], **more: Any
) -> tuple[float, str]:
    """Return how long a graph took in a new thread, and the thread."""
    thread_id = f"thread-{next(_threads)}"
    compiled = graph.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": thread_id}, "recursion_limit": 10_000, **more}
    began = perf_counter()
    compiled.invoke(values, config, durability="sync")
    return perf_counter() - began, thread_id


def interleaved(
    graph: StateGraph[Any], peers: list[Peer], values: dict[str, Any], times: int, **config: Any
) -> dict[str, float]:
    """Return the median seconds of each, one run of each after the other."""
    for peer in peers:
        run(graph, peer.saver, values, **config)
        peer.seconds.clear()
    gc.collect()
    for _ in range(times):
        for peer in peers:
            peer.seconds.append(run(graph, peer.saver, values, **config)[0])
    return {peer.name: median(peer.seconds) for peer in peers}


def sqlite_saver(path: Path, synchronous: str, stack: ExitStack) -> SqliteSaver:
    """Open LangGraph's saver with this durability."""
    connection = sqlite3.connect(path, check_same_thread=False)
    stack.callback(connection.close)
    saver = SqliteSaver(connection)
    saver.setup()
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return saver


def file_bytes(path: Path) -> float:
    """Return the size of a database after everything in its log went into it."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def on_sqlite(folder: Path, synchronous: str, stack: ExitStack) -> list[Peer]:
    """Return both savers on SQLite, in new databases."""
    place = Path(tempfile.mkdtemp(dir=folder))
    theirs = sqlite_saver(place / "theirs.db", synchronous, stack)
    ours = stack.enter_context(Saver(folder=place / "wtb", sqlite_synchronous=synchronous))
    return [
        Peer(f"SqliteSaver {synchronous}", theirs, lambda: file_bytes(place / "theirs.db")),
        Peer(f"Saver {synchronous}", ours, lambda: file_bytes(place / "wtb" / "wtb.db")),
    ]


def on_postgres(server: PostgresServer, folder: Path, stack: ExitStack) -> list[Peer]:
    """Return both savers on Postgres, in new databases, over the unix socket."""
    number = next(_threads)
    urls = []
    for name in (f"theirs_{number}", f"ours_{number}"):
        server.create_database(name)
        urls.append(server.socket_url(name))
    theirs = stack.enter_context(PostgresSaver.from_conn_string(urls[0]))
    theirs.setup()
    database = PostgresDatabase(urls[1], pool_size=1)
    schema.upgrade(database)
    database.close()
    ours = stack.enter_context(Saver(urls[1], folder=folder / "wtb"))
    return [
        Peer("PostgresSaver", theirs, lambda: postgres_bytes(urls[0])),
        Peer("Saver Postgres", ours, lambda: postgres_bytes(urls[1])),
    ]


def postgres_bytes(url: str) -> float:
    """Return the size of a database."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        return float(row[0]) if row else 0.0


def chains(folder: Path, server: PostgresServer) -> Iterator[Figure]:
    """Measure the chain of nodes with every saver."""
    for kind, schema_, message in (("mappings", Plain, plain), ("messages", Chat, chat)):
        with ExitStack() as stack:
            peers = [
                Peer("nothing", NoSaver()),
                Peer("InMemorySaver", InMemorySaver()),
                Peer("Saver memory", stack.enter_context(Saver("memory://"))),
                *on_sqlite(folder, "NORMAL", stack),
                *on_sqlite(folder, "FULL", stack),
                *on_postgres(server, folder, stack),
            ]
            took = interleaved(chain(schema_, message), peers, {"constant": CONSTANT, "messages": []}, 25)
        cost = {name: (seconds - took["nothing"]) / NODES * 1e3 for name, seconds in took.items()}
        raw = {name: round(value, 4) for name, value in cost.items()}
        detail = ", ".join(f"{name} {value:.3f}" for name, value in cost.items() if name != "nothing")
        yield Figure(
            name=f"chain of {NODES}, {kind}: cost ÷ InMemorySaver's",
            value=cost["Saver memory"] / cost["InMemorySaver"],
            unit="×",
            detail=f"ms a step above the floor ({took['nothing'] / NODES * 1e3:.3f}): {detail}",
            raw=raw,
        )
        for ours, theirs, bar in (
            ("Saver NORMAL", "SqliteSaver NORMAL", 0.4),
            ("Saver FULL", "SqliteSaver FULL", 0.6),
            ("Saver Postgres", "PostgresSaver", 0.4),
        ):
            yield Figure(
                name=f"chain of {NODES}, {kind}: cost ÷ {theirs}'s", value=cost[ours] / cost[theirs], unit="×", bar=bar
            )


def small_chains(folder: Path) -> Iterator[Figure]:
    """Measure the chain where a state of a few kilobytes costs nothing to write whole, and where threads are few."""
    for threads in (None, 1):
        with ExitStack() as stack:
            peers = [Peer("nothing", NoSaver()), *on_sqlite(folder, "NORMAL", stack)]
            took = interleaved(
                chain(Plain, plain), peers, {"constant": "", "messages": []}, 25, max_concurrency=threads
            )
        cost = {name: (seconds - took["nothing"]) / NODES * 1e3 for name, seconds in took.items()}
        yield Figure(
            name=f"chain of {NODES}, 20 KB of state{', one thread' if threads else ''}: cost ÷ SqliteSaver NORMAL's",
            value=cost["Saver NORMAL"] / cost["SqliteSaver NORMAL"],
            unit="×",
            detail=", ".join(f"{name} {value:.3f} ms" for name, value in cost.items() if name != "nothing"),
            raw={name: round(value, 4) for name, value in cost.items()},
        )


def loops(folder: Path, server: PostgresServer) -> Iterator[Figure]:
    """Measure a conversation of 200 steps: time, bytes, history, state; and bytes of 800 steps against 200."""
    for kind, schema_, message in (("mappings", Plain, plain), ("messages", Chat, chat)):
        graph = loop(schema_, message, LOOP)
        for database in ("SQLite", "Postgres"):
            with ExitStack() as stack:
                peers = (
                    on_sqlite(folder, "NORMAL", stack) if database == "SQLite" else on_postgres(server, folder, stack)
                )
                theirs, ours = peers
                before = {peer.name: peer.stored() for peer in peers}
                values = {"constant": CONSTANT, "messages": []}
                took = {peer.name: run(graph, peer.saver, values) for peer in peers}
                stored = {peer.name: peer.stored() - before[peer.name] for peer in peers}
                yield Figure(
                    name=f"loop of {LOOP}, {kind}: bytes ÷ {theirs.name}'s",
                    value=stored[ours.name] / stored[theirs.name],
                    unit="×",
                    # Only SqliteSaver stores every checkpoint whole; PostgresSaver compresses what it stores.
                    bar=1 / 25 if database == "SQLite" else None,
                    detail=", ".join(
                        f"{name} {stored[name] / 1e6:.2f} MB in {seconds:.2f} s" for name, (seconds, _) in took.items()
                    ),
                    raw={name: round(value) for name, value in stored.items()},
                )
                yield from reads(graph, kind, LOOP, peers, {name: thread for name, (_, thread) in took.items()})


def reads(graph: Any, kind: str, steps: int, peers: list[Peer], threads: dict[str, str]) -> Iterator[Figure]:
    """Measure reading the whole history, and the state."""
    theirs, ours = peers
    compiled = {peer.name: graph.compile(checkpointer=peer.saver) for peer in peers}
    configs = {peer.name: {"configurable": {"thread_id": threads[peer.name]}} for peer in peers}

    def history(name: str) -> int:
        return sum(1 for _ in compiled[name].get_state_history(configs[name]))

    def state(name: str) -> Any:
        return compiled[name].get_state(configs[name])

    for what, read, bar, times in (("history", history, 1.0, 5), ("get_state", state, 1.2, 60)):
        seconds: dict[str, list[float]] = {peer.name: [] for peer in peers}
        for _ in range(times):
            for name, taken in seconds.items():
                began = perf_counter()
                read(name)
                taken.append(perf_counter() - began)
        took = {name: median(taken) for name, taken in seconds.items()}
        yield Figure(
            name=f"loop of {steps}, {kind}: {what} ÷ {theirs.name}'s",
            value=took[ours.name] / took[theirs.name],
            unit="×",
            bar=bar,
            detail=", ".join(f"{name} {value * 1e3:.2f} ms" for name, value in took.items()),
            raw={name: round(value * 1e3, 4) for name, value in took.items()},
        )


def long_threads(folder: Path) -> Iterator[Figure]:
    """Measure 800 steps: linear bytes, history and a fork."""
    sizes: dict[int, float] = {}
    for steps in (200, 800):
        graph = loop(Plain, plain, steps)
        with ExitStack() as stack:
            theirs, ours = on_sqlite(folder, "NORMAL", stack)
            before = ours.stored()
            seconds, thread = run(graph, ours.saver, {"constant": CONSTANT, "messages": []})
            sizes[steps] = ours.stored() - before
            if steps == 800:
                peer_seconds, peer_thread = run(graph, theirs.saver, {"constant": CONSTANT, "messages": []})
                yield Figure(
                    name="loop of 800, mappings: seconds ÷ SqliteSaver's",
                    value=seconds / peer_seconds,
                    unit="×",
                    detail=f"{seconds:.2f} and {peer_seconds:.2f} s, {theirs.stored() / 1e6:.0f} MB theirs",
                )
                threads = {theirs.name: peer_thread, ours.name: thread}
                yield from reads(graph, "mappings", steps, [theirs, ours], threads)
                yield from forks(ours.saver, thread)
    yield Figure(
        name="bytes of 800 steps ÷ 4 × those of 200",
        value=sizes[800] / (4 * sizes[200]),
        unit="×",
        bar=1.15,
        detail=", ".join(f"{steps}: {size / 1e6:.2f} MB" for steps, size in sizes.items()),
    )


def forks(saver: Any, thread_id: str) -> Iterator[Figure]:
    """Measure copying a long thread, and going on from the middle of it."""
    copies: list[float] = []
    for number in range(20):
        began = perf_counter()
        saver.copy_thread(thread_id, f"copy-{number}")
        copies.append(perf_counter() - began)
    yield Figure(name="copy of a thread of 800 steps", value=median(copies) * 1e3, unit="ms", bar=2)
    tuples = list(saver.list({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}))
    middle = tuples[len(tuples) // 2]
    branches: list[float] = []
    for _ in range(20):
        checkpoint = {**middle.checkpoint, "id": _newer_id()}
        began = perf_counter()
        saver.put(middle.config, checkpoint, {"source": "fork", "step": 1, "parents": {}}, {})
        branches.append(perf_counter() - began)
    yield Figure(name="branch from the middle of 800 steps", value=median(branches) * 1e3, unit="ms", bar=2)


def _newer_id() -> str:
    from langgraph.checkpoint.base.id import uuid6

    return str(uuid6(clock_seq=-2))


@contextmanager
def _folder() -> Iterator[Path]:
    parent = Path("build")
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Path(folder).absolute()


def main() -> None:
    """Measure everything."""
    figures: list[Figure] = []
    with _folder() as folder, PostgresServer(parent=Path("/var/tmp")) as server:
        for part in (chains(folder, server), small_chains(folder), loops(folder, server), long_threads(folder)):
            for figure in part:
                figures.append(figure)
                Console().print(f"{figure.name}: {figure.value:.3g} {figure.unit} {figure.detail}", highlight=False)
    show("The LangGraph saver", figures, Path("build/benchmarks/langgraph.json"))


if __name__ == "__main__":
    main()
