"""Capacity: the bytes that Postgres keeps, with indexes, for a step, an external call, a run and a job of a batch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

import wtb
from benchmarks.report import Figure, Part, measure
from tests.services import PostgresServer
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.postgres import PostgresDatabase

SIZES = """
SELECT relname, pg_total_relation_size(relid) FROM pg_catalog.pg_statio_user_tables WHERE relname LIKE 'wtb\\_%'
"""


class Growth:
    """What a database grows by."""

    def __init__(self, url: str) -> None:
        self._url = url

    def of(self, work: Callable[[], object]) -> dict[str, int]:
        """Do the work, and return the bytes that each table grew by."""
        before = self._sizes()
        work()
        after = self._sizes()
        return {name: size - before.get(name, 0) for name, size in after.items() if size > before.get(name, 0)}

    def _sizes(self) -> dict[str, int]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("VACUUM")
            return {str(name): int(size) for name, size in connection.execute(SIZES)}


def figure(name: str, count: int, grown: dict[str, int]) -> Figure:
    """How much a thing takes, and the bytes in the tables that take most of it."""
    widest = sorted(grown, key=lambda table: -grown[table])[:4]
    detail = ", ".join(f"{table.removeprefix('wtb_')} {grown[table] / count:,.0f}" for table in widest)
    raw = {table: grown[table] / count for table in grown}
    return Figure(name=name, value=sum(grown.values()) / count / 1e3, unit="kB", detail=detail, raw=raw)


def loop(update: Callable[[dict[str, Any], Any], dict[str, Any]], steps: int) -> wtb.Workflow:
    """A flow of one node that runs so many times."""
    flow = wtb.Workflow("loop")
    flow.add_node("turn", update, start=True)
    flow.edge("turn", "turn", when=f"n < {steps}")
    flow.edge("turn", wtb.END, when=f"n >= {steps}")
    return flow


def steps(bench: wtb.Bench, growth: Growth, count: int = 2_000) -> list[Figure]:
    """Steps of a long run: the least there is, one that appends a message, and one with an external call."""

    def count_up(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        return {"n": state["n"] + 1}

    def append(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        text = f"{state['n']:>05} " * 170
        return {"n": state["n"] + 1, "messages": [*state["messages"], {"role": "user", "content": text}]}

    def call(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        return {"n": ctx.tool("charge", state["n"])}

    @wtb.tool(effects="external")
    def charge(number: int) -> int:
        return number + 1

    found = []
    ways = (("a step that changes a number", count_up), ("one that appends 1 KB to a list", append), ("one call", call))
    for name, update in ways:
        flow, state = loop(update, count), {"n": 0, "messages": []}
        grown = growth.of(partial(bench.run, flow, state, max_steps=count + 1))
        found.append(figure(f"{name}, of {count:,}", count, grown))
    return found


def runs(bench: wtb.Bench, growth: Growth, count: int = 1_000) -> list[Figure]:
    """Whole runs of three steps, alone and as jobs of a batch."""
    flow = wtb.Workflow("three")
    for position, name in enumerate("abc"):
        flow.add_node(name, lambda state, name=name: {name: state["number"]}, start=position == 0)
    flow.edge("a", "b")
    flow.edge("b", "c")
    cases = [{"id": str(number), "input": {"number": number}} for number in range(count)]
    alone = growth.of(lambda: [bench.run(flow, {"number": number}) for number in range(count)])
    batch = growth.of(lambda: bench.batch(flow, name="capacity", cases=cases, evaluators=["steps"]))
    return [
        figure(f"a run of three steps, of {count:,}", count, alone),
        figure(f"a job of three steps in a batch of {count:,}", count, batch),
    ]


def main() -> None:
    """Measure everything, in a database of its own."""
    with tempfile.TemporaryDirectory() as folder, PostgresServer(fsync=False) as server:
        url = server.create_database("capacity")
        database = PostgresDatabase(url, pool_size=1)
        schema.upgrade(database)
        database.close()
        with wtb.Bench(url, folder=Path(folder)) as bench:
            growth = Growth(url)
            parts: list[Part] = [
                ("steps", lambda: steps(bench, growth)),
                ("runs and jobs", lambda: runs(bench, growth)),
            ]
            measure("Bytes in Postgres, with indexes", Path("build/benchmarks/capacity.json"), parts)


if __name__ == "__main__":
    main()
