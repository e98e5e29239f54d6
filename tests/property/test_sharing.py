"""Random workflows with random variants: sharing changes nothing but how many node runs are executed.

How many are executed with sharing is counted from the record of a batch without: what a node run saw (its state as far
as it may read, its files) and which implementation it had, over all jobs of one case and repeat.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wtb
from wtb.bench import Bench
from wtb.domain.tools import Effects
from wtb.domain.variants import parse_label
from wtb.runs import Run

SOAK = bool(os.environ.get("WTB_SOAK"))
CASES = [
    {"id": name, "input": {"q": name, "n": number, "log": []}, "expected": {"log": []}}
    for number, name in enumerate(("one", "two"))
]
EVALUATORS = [wtb.Steps(), wtb.ToolErrors(), wtb.Cost(), wtb.ExactMatch("log")]

numbers = count(1)


@dataclass(frozen=True)
class Implementation:
    """What a node does; `constant` results are equal whatever it sees, so that different ways meet again."""

    salt: int
    constant: bool
    writes: frozenset[str]
    files: str
    tool: str
    fails: bool

    def __wtb_fingerprint__(self) -> str:
        return repr(self)


@dataclass(frozen=True)
class Place:
    """A node of the workflow: its own implementation first, then its variants."""

    implementations: tuple[Implementation, ...]
    reads: tuple[str, ...] | None
    cache: bool
    flaky: bool


@dataclass(frozen=True)
class Segment:
    """A piece of a workflow: one node, a loop, two at a time and a join, or one of two by a condition."""

    kind: str
    places: tuple[Place, ...]


SIZES = {"one": 1, "loop": 1, "fork": 3, "choice": 3}

implementations = st.builds(
    Implementation,
    salt=st.integers(0, 3),
    constant=st.booleans(),
    writes=st.frozensets(st.sampled_from(["value", "log", "shared", "drop"]), min_size=1),
    files=st.sampled_from(["", "", "own", "common", "look", "remove"]),
    tool=st.sampled_from(["", "", "step", "pure", "broken", "external"]),
    fails=st.sampled_from([False, False, False, True]),
)
places = st.builds(
    Place,
    implementations=st.lists(implementations, min_size=1, max_size=3).map(tuple),
    reads=st.sampled_from([None, None, ("q",), ("q", "n"), ("n", "shared")]),
    cache=st.sampled_from([True, True, True, False]),
    flaky=st.sampled_from([False, False, True]),
)
segments = st.sampled_from(sorted(SIZES)).flatmap(
    lambda kind: st.builds(Segment, kind=st.just(kind), places=st.tuples(*[places] * SIZES[kind]))
)
shapes = st.lists(segments, min_size=1, max_size=3)


def broken(text: str) -> None:
    raise OSError(f"no {text}")


def loud(text: str) -> str:
    return text.upper()


PURE = wtb.tool(name="sharing-pure", effects="none")(loud)
BROKEN = wtb.tool(name="sharing-broken", effects="none")(broken)
EXTERNAL = wtb.tool(name="sharing-external")(loud)


def function_of(name: str, does: Implementation, place: Place) -> Callable[..., Any]:
    """Return what a node does; always the same for the same state, files and seed."""

    def node(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
        keys = sorted(state) if place.reads is None else [key for key in place.reads if key in state]
        seen = "" if does.constant else repr([(key, state[key]) for key in keys])
        number = int.from_bytes(hashlib.sha256(f"{does.salt} {seen}".encode()).digest()[:4])
        text = call_tools(does, ctx, f"{name}-{number}")
        if place.flaky and ctx.run.attempt == 1:
            raise OSError("not yet")
        if does.fails and number % 3 == 0:
            raise ValueError(f"{name} fails on {number}")
        text += use_files(does, ctx, name)
        ctx.usage(model="none", input_tokens=number % 10, cost_usd=0.25)
        values = {"value": text, "log": [text], "shared": number % 5, "drop": wtb.DELETE}
        return {f"{key}-{name}" if key in ("value", "drop") else key: values[key] for key in does.writes} | {
            "n": number % 4 if place.cache else 1,
            f"c{name}": ctx.run.visit,
        }

    return node


def call_tools(does: Implementation, ctx: Any, text: str) -> str:
    match does.tool:
        case "step":
            return f"{text}{ctx.step('dice', lambda: ctx.rng.randint(0, 100))}"
        case "pure":
            return str(ctx.tool(PURE, text=text))
        case "external":
            return f"{text}{ctx.tool(EXTERNAL, text=text)}"
        case "broken":
            try:
                ctx.tool(BROKEN, text=text)
            except OSError as error:
                return f"{text} {error}"
    return text


def use_files(does: Implementation, ctx: Any, name: str) -> str:
    folder: Path = ctx.workspace if does.files else Path()
    match does.files:
        case "own" | "common":
            with (folder / (name if does.files == "own" else "common")).open("a") as file:
                file.write(f"{does.salt}\n")
        case "look":
            return repr(sorted((path.name, path.read_text()) for path in folder.iterdir()))
        case "remove":
            for path in folder.iterdir():
                path.unlink()
    return ""


def workflow(shape: list[Segment]) -> wtb.Workflow:
    flow = wtb.Workflow("random")
    flow.reducer("log", wtb.append)
    flow.reducer("n", wtb.add)
    names = (f"n{number}" for number in count())
    way_on: list[Callable[[str], Any]] = []

    def add(place: Place) -> str:
        name = next(names)
        own, *others = place.implementations
        retry = wtb.RetryPolicy(times=2, wait_s=0) if place.flaky else None
        options: dict[str, Any] = {"reads": place.reads, "cache": place.cache, "retry": retry}
        flow.add_node(name, function_of(name, own, place), start=name == "n0", **options)
        for number, does in enumerate(others):
            flow.add_variant(name, f"v{number}", function_of(name, does, place))
        return name

    for segment in shape:
        first, *others = (add(place) for place in segment.places)
        for lead in way_on:
            lead(first)
        match segment.kind:
            case "one":
                way_on = [partial(flow.edge, first)]
            case "loop":
                flow.edge(first, first, when=f"c{first} < 3")
                way_on = [partial(flow.edge, first, otherwise=True)]
            case "fork":
                for member in others:
                    flow.edge(first, member)
                way_on = [partial(flow.edge, others)]
            case "choice":
                flow.edge(first, others[0], when="n > 1")
                flow.edge(first, others[1], otherwise=True)
                way_on = [partial(flow.edge, other) for other in others]
    for lead in way_on:
        lead(wtb.END)
    return flow


@contextmanager
def opened(storage: str, template: Path, folder: Path) -> Iterator[Bench]:
    """A bench of its own for each example."""
    place = folder / f"example{next(numbers)}"
    if storage == "sqlite":
        place.mkdir(mode=0o700)
        shutil.copyfile(template, place / "wtb.db")
    with Bench("memory://") if storage == "memory" else Bench(folder=place) as bench:
        yield bench
    shutil.rmtree(place, ignore_errors=True)


def outcome(run: Run, result: Any) -> dict[str, Any]:
    """Return everything of a job that sharing must not change."""
    error = result.error or {}
    return {
        "status": result.status,
        "scores": dict(result.scores),
        "error": (error.get("type"), error.get("node")),
        "message": None if error.get("type") == "MergeConflict" else error.get("message"),
        "state": run.state,
        "files": dict(run.files()),
        "path": [(step.node, step.visit, step.next_nodes, step.joins) for step in run.history.lineage()],
        "usage": dict(result.usage),
    }


def distinct(bench: Bench, flow: wtb.Workflow, result: wtb.BatchResult) -> int:
    """Count the node runs of a batch without sharing that no other of their case and repeat could have stood for."""
    found: set[Any] = set()
    for job in result.results:
        nodes = {node.name: node for node in flow.definition().with_variants(parse_label(job.combination)).nodes}
        run = job.run
        sent = {call.node_run_id for call in run.calls if call.effects is Effects.EXTERNAL}
        with bench.services.storage.unit_of_work(readonly=True) as uow:
            for each in uow.node_runs.list_runs(run.id):
                node = nodes[each.node]
                assert each.input_id is not None
                before = uow.checkpoints.load(each.input_id)
                seen = {key: before.state[key] for key in before.state if node.reads is None or key in node.reads}
                files = run.files(each.input_id)
                alone = each.id if each.id in sent or not node.cache else None
                made_of = (node.name, node.variant, each.visit, repr(sorted(seen.items())), repr(sorted(files.items())))
                found.add((job.case_id, job.repeat, made_of, alone))
    return len(found)


@pytest.mark.parametrize("storage", ["memory", "sqlite"])
def test_results_with_sharing_equal_those_without_and_each_distinct_node_run_is_executed_once(
    storage: str, sqlite_template: Path, tmp_path: Path
) -> None:
    @settings(max_examples=300 if SOAK else 12 if storage == "memory" else 6)
    @given(shape=shapes, repeats=st.integers(1, 2), workers=st.sampled_from([1, 4]))
    def holds(shape: list[Segment], repeats: int, workers: int) -> None:
        flow = workflow(shape)
        options: dict[str, Any] = {"cases": CASES, "variants": "random:5", "repeats": repeats, "evaluators": EVALUATORS}
        with opened(storage, sqlite_template, tmp_path) as bench:
            alone = bench.batch(flow, name="alone", share=False, workers=1, **options)
            shared = bench.batch(flow, name="shared", workers=workers, **options)
            for one, other in zip(alone.results, shared.results, strict=True):
                assert outcome(other.run, other) == outcome(one.run, one)
            runs = alone.sharing["executed"]
            assert alone.sharing["shared"] == 0
            executed = shared.sharing["executed"]
            assert executed == distinct(bench, flow, alone)
            assert executed + shared.sharing["shared"] == runs

    holds()
