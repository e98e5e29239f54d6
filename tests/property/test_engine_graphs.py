"""Random workflows give the same on every storage: straight through, stopped after every step, and after crashes."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations, count, groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import wtb
from tests.services import PostgresServer
from tests.workspaces import Description, described, write
from wtb.domain.errors import ExecutionNotFound, StorageUnavailable
from wtb.domain.execution import ExecutionStatus
from wtb.infrastructure.unit_of_work import TransactionalUnitOfWork
from wtb.testing.fakes import CrashPoints

SOAK = bool(os.environ.get("WTB_SOAK"))
LIMIT = 9
"""Steps that a run may take: loops that would go on are ended by it."""
INPUT = {"text": "x" * 300, "grow": [1, 2]}

WRITES = ["log", "total", "grow", "step", "look", "drop", "shared"]
FILES = ["own", "deep", "large", "remove", "common"]

numbers = count(1)


@dataclass(frozen=True)
class NodePlan:
    """What a node writes and where it leads: to all of `targets`, or back to `back` for so many visits first."""

    writes: frozenset[str]
    files: frozenset[str]
    asynchronous: bool = False
    flaky: bool = False
    targets: tuple[int, ...] = ()
    back: int | None = None
    times: int = 0


@dataclass(frozen=True)
class Graph:
    """A workflow as data; a join is (first, second, target)."""

    nodes: Mapping[int, NodePlan]
    joins: tuple[tuple[int, int, int], ...] = ()

    def reachable(self) -> Graph:
        """Return it without the nodes that nothing leads to."""
        reached, front = {0}, [0]
        while front:
            source = front.pop()
            plan = self.nodes[source]
            found = {*plan.targets, *({plan.back} if plan.back is not None else ())}
            found |= {target for first, second, target in self.joins if {first, second} <= reached}
            front += found - reached
            reached |= found
        joins = tuple(join for join in self.joins if reached.issuperset(join))
        return Graph({number: plan for number, plan in self.nodes.items() if number in reached}, joins)

    def workflow(self) -> wtb.Workflow:
        flow = wtb.Workflow("random")
        for number, plan in self.nodes.items():
            retry = wtb.RetryPolicy(times=3, wait_s=0) if plan.flaky else None
            flow.add_node(f"n{number}", function_of(number, plan), start=number == 0, retry=retry)
        for number, plan in self.nodes.items():
            if plan.back is not None:
                flow.edge(f"n{number}", f"n{plan.back}", when=f"c{number} <= {plan.times}")
                flow.edge(f"n{number}", f"n{plan.targets[0]}" if plan.targets else wtb.END, otherwise=True)
            else:
                for target in plan.targets:
                    flow.edge(f"n{number}", f"n{target}")
        for first, second, target in self.joins:
            flow.edge([f"n{first}", f"n{second}"], f"n{target}")
        flow.reducer("log", wtb.append)
        flow.reducer("total", wtb.add)
        return flow


def function_of(number: int, plan: NodePlan) -> Callable[..., Any]:
    """Return what a node of this plan does; always the same for the same state and files."""

    def node(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
        visit = state.get(f"c{number}", 0) + 1
        if plan.flaky and ctx.run.attempt == 1:
            (ctx.workspace / "half done").write_text(f"{number}")
            raise OSError("not yet")
        seen = sorted(path.name for path in ctx.workspace.iterdir()) if "look" in plan.writes else []
        if plan.files:
            change_files(ctx.workspace, number, visit, plan.files)
        values = {
            "log": f"{number}.{visit}",
            "total": 10 * visit + number,
            "shared": number,
            f"grow{number}": [*state.get(f"grow{number}", state["grow"]), {"visit": visit, "text": "y" * 100 * visit}],
            f"step{number}": ctx.step("measure", lambda: 7 * visit) if "step" in plan.writes else None,
            f"look{number}": seen,
            f"drop{number}": None if visit % 2 else {"visit": visit},
        }
        chosen = {key: value for key, value in values.items() if key.rstrip("0123456789") in plan.writes}
        return {f"c{number}": visit, **chosen}

    async def later(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
        return node(state, ctx)

    return later if plan.asynchronous else node


def change_files(folder: Path, number: int, visit: int, kinds: frozenset[str]) -> None:
    """Write, append and remove files, in ways that sometimes clash with what other nodes do."""
    if "own" in kinds:
        with (folder / f"own{number}").open("a") as file:
            file.write(f"{visit}\n")
    if "deep" in kinds:
        (folder / "deep" / f"{number}").mkdir(parents=True, exist_ok=True)
        (folder / "deep" / f"{number}" / f"{visit}").write_text("deep")
    if "large" in kinds:
        (folder / f"large{number}").write_bytes(f"{number} {visit} ".encode() * 1_000)
    if "remove" in kinds:
        for path in folder.glob("own*"):
            path.unlink()
    if "common" in kinds:
        (folder / "common").write_text(f"{number} {visit}")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Three to seven nodes: chains, fan-outs, joins and loops."""
    size = draw(st.integers(3, 7))
    nodes: dict[int, NodePlan] = {}
    joins: list[tuple[int, int, int]] = []
    ends_in_join: set[int] = set()
    for number in range(size):
        later = range(number + 1, size)
        targets, back, times = tuple[int, ...](later[:1]), None, 0
        way = draw(st.sampled_from(["on", "fan", "fan", "loop", "end"]))
        if number in ends_in_join:
            targets = ()
        elif way == "fan" and len(later) > 1:
            targets = tuple(sorted(draw(st.sets(st.sampled_from(later), min_size=2, max_size=3))))
            first, second = targets[:2]
            if second + 1 < size and draw(st.booleans()):
                joins.append((first, second, draw(st.integers(second + 1, size - 1))))
                ends_in_join |= {first, second}
        elif way == "loop":
            back, times = draw(st.integers(0, number)), draw(st.integers(1, 2))
        elif way == "end" and number:
            targets = ()
        nodes[number] = NodePlan(
            writes=frozenset(draw(kinds(WRITES))),
            files=frozenset(draw(kinds(FILES))),
            asynchronous=draw(st.booleans()),
            flaky=draw(st.integers(0, 3)) == 0,
            targets=targets,
            back=back,
            times=times,
        )
    return Graph(nodes, tuple(dict.fromkeys(joins))).reachable()


def kinds(names: list[str]) -> st.SearchStrategy[set[str]]:
    """Some of the names; the last, which clashes, rarely."""
    usual = st.sets(st.sampled_from(names[:-1]))
    return st.one_of(usual, usual, usual, st.sets(st.sampled_from(names)))


@dataclass(frozen=True)
class Result:
    """What can be seen of a run that has ended, whatever happened on the way."""

    status: ExecutionStatus
    error: tuple[str, str, str | None] | None
    state: Mapping[str, Any]
    supersteps: list[list[tuple[str, int]]]
    state_hashes: list[bytes]
    file_commits: list[str | None]
    files: Description

    @classmethod
    def of(cls, run: wtb.Run, bench: wtb.Bench, folder: Path) -> Result:
        """Read it all."""
        line = run.history.lineage()
        done = [boundary for boundary in run.history.boundaries() if boundary.last_id is not None]
        files = folder / f"{next(numbers)}"
        if line[-1].file_commit is not None:
            bench.services.workspaces.export(line[-1].file_commit, files)  # type: ignore[arg-type]
        error = run.error
        return cls(
            status=run.status,
            error=None if error is None else (error.type, error.message, error.node),
            state=run.state,
            supersteps=[
                sorted((boundary.node, boundary.visit) for boundary in group)
                for _, group in groupby(done, key=lambda boundary: boundary.last_id)
            ],
            state_hashes=[checkpoint.state_hash for checkpoint in line],
            file_commits=[checkpoint.file_commit for checkpoint in line],
            files=described(files) if files.exists() else {},
        )


class Model:
    """What a workflow must come to, worked out with dictionaries and plain folders, one superstep after the other."""

    def __init__(self, graph: Graph, folder: Path) -> None:
        self.graph = graph
        self.state: dict[str, Any] = dict(INPUT)
        self.files: Description = {}
        self.supersteps: list[list[tuple[str, int]]] = []
        self.error: str | None = None
        self._folder = folder
        self._arrived: dict[tuple[int, int, int], set[int]] = {}

    def run(self) -> Model:
        due = [0]
        while due and self.error is None:
            due = self._superstep(due)
        return self

    def _superstep(self, due: list[int]) -> list[int]:
        if len(self.supersteps) == LIMIT:
            self.error = "StepLimitReached"
            return []
        results = [self._result(number) for number in due]
        written = Counter(key for update, _ in results for key in update if key not in ("log", "total"))
        changes = [changed(self.files, files) for _, files in results]
        if any(times > 1 for times in written.values()):
            self.error = "InvalidInput"
        elif any(clash(one, other) for one, other in combinations(changes, 2)):
            self.error = "MergeConflict"
        else:
            for update, _ in results:
                self._apply(update)
            for change in changes:
                self.files = {path: entry for path, entry in (self.files | change).items() if entry is not None}
            self.supersteps.append([(f"n{number}", self.state[f"c{number}"]) for number in due])
        return sorted({target for number in due for target in self._after(number)})

    def _result(self, number: int) -> tuple[dict[str, Any], Description]:
        folder = self._folder / f"{next(numbers)}"
        folder.mkdir(parents=True)
        for path, (mode, *content) in self.files.items():
            write(folder, {path: content[0] if content else None})
            (folder / path).chmod(mode)
        node = function_of(number, replace(self.graph.nodes[number], asynchronous=False))
        ctx = SimpleNamespace(workspace=folder, run=SimpleNamespace(attempt=2), step=lambda key, function: function())
        return node(self.state, ctx), described(folder)

    def _apply(self, update: Mapping[str, Any]) -> None:
        reduced = {key: value for key, value in update.items() if key in ("log", "total")}
        self.state |= {key: value for key, value in update.items() if key not in reduced}
        if "log" in reduced:
            self.state["log"] = [*self.state.get("log", []), reduced["log"]]
        if "total" in reduced:
            self.state["total"] = self.state.get("total", 0) + reduced["total"]

    def _after(self, number: int) -> Iterator[int]:
        plan = self.graph.nodes[number]
        if plan.back is not None and self.state.get(f"c{number}", 0) <= plan.times:
            yield plan.back
        else:
            yield from plan.targets
        for join in self.graph.joins:
            if number in join[:2]:
                self._arrived.setdefault(join, set()).add(number)
                if self._arrived[join] == set(join[:2]):
                    del self._arrived[join]
                    yield join[2]


def changed(before: Description, after: Description) -> dict[str, Any]:
    """Return what was put, and None for what was removed, by path."""
    removed = dict.fromkeys(before.keys() - after.keys())
    return removed | {path: entry for path, entry in after.items() if before.get(path) != entry}


def clash(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return any(one[path] != other[path] for path in one.keys() & other.keys())


class Place:
    """Where runs are kept; opened anew it remembers nothing but what was stored, unless that is memory."""

    def __init__(self, folder: Path, url: str | None) -> None:
        self._folder = folder
        self._url = url
        self.crashes = 0
        self._memory = wtb.Bench("memory://") if url == "memory://" else None

    @contextmanager
    def open(self) -> Iterator[wtb.Bench]:
        if self._memory is not None:
            yield self._memory
            return
        with wtb.Bench(self._url, folder=self._folder / "wtb") as bench:
            yield bench

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()

    def straight(self, flow: wtb.Workflow) -> Result:
        with self.open() as bench:
            run = bench.run(flow, INPUT, max_steps=LIMIT)
            return Result.of(run, bench, self._folder)

    def step_by_step(self, flow: wtb.Workflow) -> Result:
        """Let the run take one step more each time."""
        with self.open() as bench:
            run = bench.create(flow, INPUT, max_steps=1)
        for limit in range(1, LIMIT + 1):
            with self.open() as bench:
                run = bench.resume(run.id, flow, max_steps=limit)
                if run.error is None or run.error.type != "StepLimitReached":
                    break
        return self.result(run.id)

    def with_breakpoints(self, flow: wtb.Workflow) -> Result:
        """Pause before and after every node."""
        names = [node.name for node in flow.definition().nodes]
        with self.open() as bench:
            run = bench.create(flow, INPUT, max_steps=LIMIT, break_after=names, break_before=names)
        for _ in range(3 * LIMIT):
            with self.open() as bench:
                if bench.resume(run.id, flow).status is not ExecutionStatus.PAUSED:
                    break
        return self.result(run.id)

    def with_crashes(self, flow: wtb.Workflow, crashes: list[Crashing]) -> Result:
        """Crash at these commits, one life of the process after the other, and then go on to the end."""
        run_id = f"crashing-{next(numbers)}"
        for crash in (*crashes, None):
            try:
                with self.open() as bench, crashing(crash):
                    if is_unfinished(begun(bench, flow, run_id)):
                        bench.resume(run_id, flow)
            except (Crash, StorageUnavailable):
                self.crashes += 1
        return self.result(run_id)

    def result(self, run_id: str) -> Result:
        with self.open() as bench:
            return Result.of(bench.get(run_id), bench, self._folder)


def begun(bench: wtb.Bench, flow: wtb.Workflow, run_id: str) -> wtb.Run:
    """Return the run, recorded now if its first process did not live to do so.

    A step that cannot be stored ends the process: going on without it would put two steps into one checkpoint.
    """
    try:
        return bench.get(run_id)
    except ExecutionNotFound:
        return bench.create(flow, INPUT, run_id=run_id, max_steps=LIMIT, checkpoint_failure="fatal")


def is_unfinished(run: wtb.Run) -> bool:
    """Whether the run stopped for no reason of its own."""
    if run.error is not None:
        return run.error.type == "StorageUnavailable"
    return run.status in (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)


class Crash(BaseException):
    """The end of a process, as far as one can have it within one."""


Crashing = tuple[str, int, type[BaseException]]
"""Before or after which commit, and whether the process ends there or hears that the storage is out of reach."""


@contextmanager
def crashing(crash: Crashing | None) -> Iterator[None]:
    """Raise at this commit, counted from now on, right before it is made or right after."""
    when, passing, error = crash or ("never", 0, Crash)

    def end() -> None:
        raise error("the end")

    points, commit = CrashPoints(end, at=when, passing=passing), TransactionalUnitOfWork.commit

    def watched(uow: TransactionalUnitOfWork) -> None:
        points.reach("before")
        commit(uow)
        points.reach("after")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionalUnitOfWork, "commit", watched)
        yield


@pytest.fixture
def places(
    tmp_path: Path, sqlite_template: Path, postgres: PostgresServer, migrated_database: str
) -> Iterator[dict[str, Place]]:
    for name in ("memory", "sqlite/wtb", "postgres"):
        (tmp_path / name).mkdir(parents=True, mode=0o700)
    shutil.copyfile(sqlite_template, tmp_path / "sqlite" / "wtb" / "wtb.db")
    opened = {
        "memory": Place(tmp_path / "memory", "memory://"),
        "sqlite": Place(tmp_path / "sqlite", None),
        "postgres": Place(tmp_path / "postgres", postgres.url(migrated_database)),
    }
    yield opened
    opened["memory"].close()


def plan(writes: str = "", files: str = "", **facts: Any) -> NodePlan:
    return NodePlan(writes=frozenset(writes.split()), files=frozenset(files.split()), **facts)


def diamond(left: NodePlan, right: NodePlan) -> Graph:
    return Graph({0: plan(targets=(1, 2)), 1: left, 2: right, 3: plan("log look", "own")}, joins=((1, 2, 3),))


def chain(length: int) -> Graph:
    return Graph({n: plan(targets=(n + 1,) if n + 1 < length else (), flaky=True) for n in range(length)}, joins=())


SQL = ("sqlite", "postgres")
AROUND_6: list[Crashing] = [("before", 6, Crash), ("after", 6, StorageUnavailable)]
CRASHES = st.lists(
    st.tuples(st.sampled_from(["before", "after"]), st.integers(1, 25), st.sampled_from([Crash, StorageUnavailable])),
    min_size=2,
    max_size=3,
)


def test_every_way_through_a_random_workflow_leads_to_the_same(places: dict[str, Place], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    ends: Counter[str] = Counter()

    @settings(max_examples=1_000 if SOAK else 10)
    @given(graphs(), CRASHES, st.sampled_from([("sqlite", "postgres"), ("postgres", "sqlite")]))
    @example(diamond(plan("log", "own", flaky=True), plan("log", "deep", asynchronous=True)), AROUND_6, SQL)
    @example(diamond(plan("shared"), plan("shared")), AROUND_6, SQL)
    @example(diamond(plan("", "common"), plan("", "common")), AROUND_6, SQL)
    @example(chain(4), [("before", 1, Crash), ("before", 4, StorageUnavailable)], SQL)
    def check(graph: Graph, crashes: list[Crashing], databases: tuple[str, str]) -> None:
        flow = graph.workflow()
        expected = places["memory"].straight(flow)
        model = Model(graph, folder).run()
        assert (expected.error and expected.error[0], expected.supersteps) == (model.error, model.supersteps)
        assert (expected.state, expected.files) == (model.state, model.files)
        ends[expected.error[0] if expected.error else "completed"] += 1
        assert places["memory"].with_crashes(flow, crashes) == expected
        for name in databases:
            assert places[name].straight(flow) == expected, name
            assert places[name].with_crashes(flow, crashes) == expected, name
        assert places[databases[0]].step_by_step(flow) == expected
        assert places[databases[1]].with_breakpoints(flow) == expected

    check()
    assert ends["completed"] > 2, ends
    assert {"InvalidInput", "MergeConflict"} <= ends.keys(), ends
    assert all(place.crashes > 6 for place in places.values())
