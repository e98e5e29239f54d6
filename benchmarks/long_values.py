"""Long values: a list or mapping of 2,000 items that a node returns whole, against `wtb.append` and `wtb.merge`.

A step is measured in processor time, from one call of the node's function to the next, with the copy that the node is
given. Runs take turns of 100 steps. Reducers are told what is new; returning the whole value means that it must be
found, so one comparison of the whole value is measured beside it and taken off: `same` of the state's value and a copy.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

from benchmarks.report import Figure, Part, measure
from wtb.bootstrap import bootstrap
from wtb.domain.options import RunOptions
from wtb.domain.sameness import same
from wtb.domain.state import State, append, merge
from wtb.flow import Workflow
from wtb.settings import load_settings

ITEMS, STEPS, TURNS = 2_000, 100, 6

Node = Callable[[Any], Mapping[str, Any]]
Item = Callable[[int], Any]


def text(number: int) -> str:
    """Return 1 KB that is nowhere else."""
    return f"{number:06} " + "x" * 993


def record(number: int) -> dict[str, Any]:
    """Return a message of 1 KB."""
    return {"role": "user", "content": text(number)}


def step(kind: str, item: Item, state: Any) -> dict[str, Any]:
    """Return what a node returns to make the value one longer, in one of the ways to write it."""
    number = state["n"]
    key, new = f"k{number}", item(number)
    match kind:
        case "append":
            value: Any = [new]
        case "list":
            value = [*state["value"], new]
        case "merge":
            value = {key: new}
        case "mapping":
            value = {**state["value"], key: new}
        case _:
            value = {**state["value"], f"k{number % ITEMS}": new}
    return {"value": value, "n": number + 1}


class Series:
    """Runs of one way to write a step, each in a database of its own."""

    def __init__(self, folder: Path, kind: str, item: Item) -> None:
        self._folder = folder
        self._kind = kind
        self._item = item
        self.seconds: list[float] = []
        self.compared: list[float] = []
        self.stored = 0

    def run(self) -> None:
        """Take some steps."""
        began: list[float] = []

        def node(state: Any) -> Mapping[str, Any]:
            began.append(thread_time())
            return step(self._kind, self._item, state)

        flow = Workflow("long").add_node("node", node, start=True).edge("node", "node")
        if self._kind in ("append", "merge"):
            flow.reducer("value", append if self._kind == "append" else merge)
        definition, start = flow.definition(), {"value": self._start(), "n": ITEMS}
        place = Path(tempfile.mkdtemp(dir=self._folder))
        with bootstrap(load_settings(folder=place)) as services:
            run = services.controller.create(definition, start, RunOptions(max_steps=STEPS))
            before = stored_bytes(place)
            services.controller.run(run.id, definition)
            self.stored = stored_bytes(place) - before
        self.seconds += [after - before for before, after in pairwise(began)]
        self.compared += [self._compare() for _ in range(STEPS // 5)]

    def _start(self) -> Any:
        items = map(self._item, range(ITEMS))
        return list(items) if self._kind in ("append", "list") else {f"k{n}": each for n, each in enumerate(items)}

    def _compare(self) -> float:
        state = State({"value": self._start()})
        old, copy = state["value"], state.copy_out("value")
        began = thread_time()
        assert same(old, copy)
        return thread_time() - began


def stored_bytes(folder: Path) -> int:
    """Return how much the checkpoints, keyframes and blobs in a database take."""
    connection = sqlite3.connect(next(folder.rglob("*.db")))
    columns = {"wtb_checkpoints": "payload", "wtb_keyframes": "payload", "wtb_blobs": "data"}
    totals = [
        connection.execute(f"SELECT coalesce(sum(length({column})), 0) FROM {table}").fetchone()[0]
        for table, column in columns.items()
    ]
    connection.close()
    return sum(totals)


def against_append(folder: Path, name: str, item: Item) -> list[Figure]:
    """Measure each way to write a step in turns with `wtb.append`."""
    ways = {
        "append": "wtb.append",
        "list": "[*old, item]",
        "merge": "wtb.merge",
        "mapping": "{**old, key: item}",
        "again": "{**old, old_key: item}",
    }
    series = {kind: Series(folder, kind, item) for kind in ways}
    for turn in range(TURNS):
        for kind in list(series)[:: -1 if turn % 2 else 1]:
            series[kind].run()
    return [figure for kind in list(ways)[1:] for figure in figures(f"{ways[kind]}, {name}", series, kind)]


def figures(name: str, series: Mapping[str, Series], kind: str) -> list[Figure]:
    """Return time and bytes of one way, against the reducer that does the same."""
    own, peer = series[kind], series["append" if kind in ("list", "merge") else "merge"]
    reducer = f"wtb.{'append' if peer is series['append'] else 'merge'}"
    step_us, peer_us, pass_us = (median(each) * 1e6 for each in (own.seconds, peer.seconds, own.compared))
    beyond = step_us - (0 if kind == "merge" else pass_us)
    return [
        Figure(
            name=f"{name}: step ÷ {reducer}",
            value=beyond / peer_us,
            unit="×",
            bar=1.5,
            detail=f"{step_us:.0f} and {peer_us:.0f} µs; one comparison takes {pass_us:.0f} µs",
            raw={"step_us": step_us, "peer_us": peer_us, "comparison_us": pass_us},
        ),
        Figure(
            name=f"{name}: bytes ÷ wtb.append",
            value=own.stored / series["append"].stored,
            unit="×",
            bar=1.2,
            detail=f"{own.stored / STEPS:.0f} and {series['append'].stored / STEPS:.0f} a step",
            raw={"bytes": own.stored, "append_bytes": series["append"].stored},
        ),
    ]


def main() -> None:
    """Measure everything."""
    with tempfile.TemporaryDirectory(prefix="wtb-bench-") as name:
        folder = Path(name)
        parts: list[Part] = [
            ("texts", partial(against_append, folder, f"{ITEMS:,} texts", text)),
            ("mappings", partial(against_append, folder, f"{ITEMS:,} mappings", record)),
        ]
        measure("Long values", Path("build/benchmarks/long_values.json"), parts)


if __name__ == "__main__":
    main()
